// Inverted dropout with counter-based random numbers: the same elements are dropped as on a CPU.
#include <array>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"

namespace cairn::kernels::cuda {
namespace {

// The parameters that determine which elements are kept.
struct Choice {
  uint64_t stream = 0;
  uint64_t threshold = 0;  // an element is dropped if its random word is below this
  float factor = 1;        // the kept elements are multiplied by this
  uint64_t elements_per_example = 0;
};

// The random words of the four elements from `place` on. Four elements share a block of random words.
__device__ std::array<uint32_t, 4> WordsFrom(uint64_t place, const std::array<uint32_t, 2>& key) {
  const auto block = [&](uint64_t counter) {
    return Philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, key);
  };
  const std::array<uint32_t, 4> words = block(place / 4);
  const auto skipped = static_cast<unsigned>(place % 4);
  if (skipped == 0) return words;
  const std::array<uint32_t, 4> more = block(place / 4 + 1);
  switch (skipped) {
    case 1:
      return {words[1], words[2], words[3], more[0]};
    case 2:
      return {words[2], words[3], more[0], more[1]};
    default:
      return {words[3], more[0], more[1], more[2]};
  }
}

// Writes the kept elements of `from`, times the factor, to `to`, and 0 for the others. One thread for each
// vector of elements, grid-strided, and four random words for every four elements; memory is padded to whole
// vectors. The first thread copies the seed to `kept_seed`, unless that is null. Deterministic.
template <typename T>
__global__ void Drop(Choice choice, int64_t vectors, const Context::RandomSeed* seed,
                     Context::RandomSeed* kept_seed, const Vector<T>* from, Vector<T>* to) {
  const Context::RandomSeed drawn = *seed;
  const uint64_t mixed = drawn.seed ^ choice.stream;
  const uint64_t first = drawn.first_example * choice.elements_per_example;
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
  if (kept_seed != nullptr && CAIRN_GLOBAL_THREAD == 0) *kept_seed = drawn;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < vectors; i += CAIRN_GLOBAL_THREADS) {
    Vector<T> v = from[i];
#pragma unroll
    for (int k = 0; k < kVector<T>; k += 4) {
      const std::array<uint32_t, 4> words = WordsFrom(first + static_cast<uint64_t>(i * kVector<T> + k), key);
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const bool stays = words[static_cast<size_t>(word)] >= choice.threshold;
        // Selected, not multiplied by 0, so that a dropped NaN becomes 0.
        v.at[k + word] = FromFloat<T>(stays ? ToFloat(v.at[k + word]) * choice.factor : 0.0f);
      }
    }
    to[i] = v;
  }
}

template <typename T>
class CudaDropout final : public Dropout {
 public:
  CudaDropout(Context& context, const DropoutParams& params, const Context::RandomSeed* next_seed,
              std::unique_ptr<DeviceMemory> seed)
      : context_(context),
        choice_({.stream = params.stream,
                 .threshold = static_cast<uint64_t>(static_cast<double>(params.rate) * 0x1p32),
                 .factor = 1.0f / (1.0f - params.rate),
                 .elements_per_example =
                     static_cast<uint64_t>(params.input.shape.num_elements() / params.input.shape[0])}),
        vectors_(CeilDiv(params.input.shape.num_elements(), kVector<T>)),
        next_seed_(next_seed),
        seed_(std::move(seed)) {}

  absl::Status Forward(const float* x, float* y) override {
    return CAIRN_LAUNCH(Drop<T>, GridFor(vectors_), kBlock, 0, context_.stream(), choice_, vectors_,
                        next_seed_, seed(), As<Vector<T>>(x), As<Vector<T>>(y));
  }
  // Draws the random numbers of Forward() again, which is cheaper than storing the choice.
  absl::Status Backward(const float* dy, float* dx) override {
    return CAIRN_LAUNCH(Drop<T>, GridFor(vectors_), kBlock, 0, context_.stream(), choice_, vectors_, seed(),
                        static_cast<Context::RandomSeed*>(nullptr), As<Vector<T>>(dy), As<Vector<T>>(dx));
  }

 private:
  Context::RandomSeed* seed() const { return reinterpret_cast<Context::RandomSeed*>(seed_->data()); }

  Context& context_;
  const Choice choice_;
  const int64_t vectors_;
  const Context::RandomSeed* const next_seed_;  // the seed of the next Forward(), in the context
  const std::unique_ptr<DeviceMemory> seed_;    // the seed of the last Forward()
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dropout>> MakeDropout(Context& context, const DropoutParams& params) {
  if (params.input.num_floats() < 1 || !(params.rate >= 0 && params.rate < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot apply dropout with rate ", params.rate, " to ", params.input.ToString()));
  }
  CAIRN_ASSIGN_OR_RETURN(const Context::RandomSeed* const next_seed, context.Seed());
  CAIRN_ASSIGN_OR_RETURN(auto seed,
                         context.Allocate(sizeof(Context::RandomSeed) / sizeof(float), "dropout: seed"));
  return VisitType(params.input.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<Dropout>> {
    using T = std::remove_pointer_t<decltype(p)>;
    return std::make_unique<CudaDropout<T>>(context, params, next_seed, std::move(seed));
  });
}

}  // namespace cairn::kernels::cuda
