// Random changes with counter-based random numbers: those of a CPU, up to the rounding of logarithms and sines.
#include <array>
#include <type_traits>
#include <utility>

#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/noise.h"

namespace cairn::kernels::cuda {
namespace {

struct NoisyElements {
  int64_t elements, per_example;
  uint64_t stream;

  // The blocks of random words that the elements may touch, whatever the place of the first.
  __host__ __device__ int64_t blocks() const { return elements / kWordsOfBlock + 2; }
};

// Writes the changed elements, or the gradients through the changes, to `to`. One thread for each block of random
// words, grid-strided. The first thread copies the seed to `kept_seed`, unless that is null. Deterministic.
template <typename T, bool kForward>
__global__ void ChangeElements(NoiseFormula formula, NoisyElements noisy, const Context::RandomSeed* seed,
                               Context::RandomSeed* kept_seed, const T* from, T* to) {
  const Context::RandomSeed drawn = *seed;
  const uint64_t mixed = drawn.seed ^ noisy.stream;
  const auto first = static_cast<int64_t>(drawn.first_example) * noisy.per_example;
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
  if (kept_seed != nullptr && CAIRN_GLOBAL_THREAD == 0) *kept_seed = drawn;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < noisy.blocks(); i += CAIRN_GLOBAL_THREADS) {
    const auto counter = static_cast<uint64_t>(first / kWordsOfBlock + i);
    const auto changes = formula.ChangesBy(
        Philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, key));
#pragma unroll
    for (int k = 0; k < kWordsOfBlock; ++k) {
      const int64_t at = static_cast<int64_t>(counter) * kWordsOfBlock + k - first;
      if (at < 0 || at >= noisy.elements) continue;
      const Change& change = changes[static_cast<size_t>(k)];
      const float value = ToFloat(from[at]);
      to[at] = FromFloat<T>(kForward ? change.Apply(value) : change.Gradient(value));
    }
  }
}

template <typename T>
class CudaNoise final : public Dropout {
 public:
  CudaNoise(Context& context, const NoiseParams& params, const Context::RandomSeed* next_seed,
            std::unique_ptr<DeviceMemory> seed)
      : context_(context),
        formula_(params),
        noisy_({.elements = params.input.shape.num_elements(),
                .per_example = params.input.shape.num_elements() / params.input.shape[0],
                .stream = params.stream}),
        next_seed_(next_seed),
        seed_(std::move(seed)) {}

  absl::Status Forward(const float* x, float* y) override {
    return CAIRN_LAUNCH((ChangeElements<T, true>), GridFor(noisy_.blocks()), kBlock, 0, context_.stream(),
                        formula_, noisy_, next_seed_, seed(), As<T>(x), As<T>(y));
  }
  absl::Status Backward(const float* dy, float* dx) override {
    return CAIRN_LAUNCH((ChangeElements<T, false>), GridFor(noisy_.blocks()), kBlock, 0, context_.stream(),
                        formula_, noisy_, seed(), static_cast<Context::RandomSeed*>(nullptr), As<T>(dy),
                        As<T>(dx));
  }

 private:
  Context::RandomSeed* seed() const { return reinterpret_cast<Context::RandomSeed*>(seed_->data()); }

  Context& context_;
  const NoiseFormula formula_;
  const NoisyElements noisy_;
  const Context::RandomSeed* const next_seed_;  // the seed of the next Forward(), in the context
  const std::unique_ptr<DeviceMemory> seed_;    // the seed of the last Forward()
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dropout>> MakeNoise(Context& context, const NoiseParams& params) {
  CAIRN_RETURN_IF_ERROR(CheckNoise(params));
  CAIRN_ASSIGN_OR_RETURN(const Context::RandomSeed* const next_seed, context.Seed());
  CAIRN_ASSIGN_OR_RETURN(auto seed,
                         context.Allocate(sizeof(Context::RandomSeed) / sizeof(float), "noise: seed"));
  return VisitType(params.input.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<Dropout>> {
    using T = std::remove_pointer_t<decltype(p)>;
    return std::make_unique<CudaNoise<T>>(context, params, next_seed, std::move(seed));
  });
}

}  // namespace cairn::kernels::cuda
