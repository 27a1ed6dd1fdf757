// Inverted dropout by counter-based random numbers: which elements fall does not depend on threads.
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

class CpuDropout final : public Dropout {
 public:
  CpuDropout(onednn::Context& context, int64_t elements, float rate)
      : context_(context),
        elements_(elements),
        threshold_(static_cast<uint64_t>(static_cast<double>(rate) * 0x1p32)),
        factors_{0.0f, 1.0f / (1.0f - rate)},
        kept_(static_cast<size_t>(elements)) {}

  absl::Status Forward(const float* x, uint64_t seed, float* y) override {
    const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    ParallelFor(context_, elements_, kElementGrain, [=, this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += 4) {  // a grain is a multiple of 4
        const auto counter = static_cast<uint64_t>(i / 4);
        const auto words =
            Philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, key);
        for (int64_t k = i; k < std::min(i + 4, end); ++k) {
          const bool kept = words[static_cast<size_t>(k - i)] >= threshold_;
          kept_[static_cast<size_t>(k)] = kept;
          y[k] = x[k] * factors_[kept];
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float* dy, float* dx) override {
    ParallelFor(context_, elements_, kElementGrain, [=, this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) dx[i] = dy[i] * factors_[kept_[static_cast<size_t>(i)]];
    });
    return absl::OkStatus();
  }

 private:
  onednn::Context& context_;
  const int64_t elements_;
  const uint64_t threshold_;   // words below it drop their element
  const float factors_[2];     // of what falls, and of what stays
  std::vector<uint8_t> kept_;  // [element] 0 or 1
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dropout>> MakeDropout(onednn::Context& context, int64_t elements, float rate) {
  if (elements < 1 || !(rate >= 0 && rate < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("dropout of ", rate, " of ", elements, " elements"));
  }
  return std::make_unique<CpuDropout>(context, elements, rate);
}

}  // namespace cairn::kernels::cpu
