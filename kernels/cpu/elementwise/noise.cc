// Random changes with counter-based random numbers: they do not depend on threads.
#include "kernels/noise.h"

#include <array>

#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

class CpuNoise final : public Dropout {
 public:
  CpuNoise(onednn::Context& context, const NoiseParams& params)
      : context_(context),
        formula_(params),
        elements_(params.input.shape.num_elements()),
        elements_per_example_(elements_ / params.input.shape[0]),
        stream_(params.stream) {}

  absl::Status Forward(const float* x, float* y) override {
    seed_ = context_.seed() ^ stream_;
    first_ = context_.first_example() * elements_per_example_;
    ForEach([=](int64_t i, const Change& change) { y[i] = change.Apply(x[i]); });
    return absl::OkStatus();
  }

  // Draws the random numbers of Forward() again.
  absl::Status Backward(const float* dy, float* dx) override {
    ForEach([=](int64_t i, const Change& change) { dx[i] = change.Gradient(dy[i]); });
    return absl::OkStatus();
  }

 private:
  // Calls body(element, its change).
  template <typename Body>
  void ForEach(const Body& body) const {
    const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)};
    ParallelFor(context_, elements_, kElementGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end;) {
        const auto counter = static_cast<uint64_t>((first_ + i) / kWordsOfBlock);
        const auto changes = formula_.ChangesBy(
            Philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, key));
        for (auto at = static_cast<size_t>((first_ + i) % kWordsOfBlock); at < changes.size() && i < end;
             ++at, ++i) {
          body(i, changes[at]);
        }
      }
    });
  }

  onednn::Context& context_;
  const NoiseFormula formula_;
  const int64_t elements_, elements_per_example_;
  const uint64_t stream_;
  // The seed of the last Forward(), and the place of its first element.
  uint64_t seed_ = 0;
  int64_t first_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dropout>> MakeNoise(onednn::Context& context, const NoiseParams& params) {
  CAIRN_RETURN_IF_ERROR(CheckNoise(params));
  return std::make_unique<CpuNoise>(context, params);
}

}  // namespace cairn::kernels::cpu
