// Inverted dropout with counter-based random numbers: the choice of elements does not depend on threads.
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
  CpuDropout(onednn::Context& context, const DropoutParams& params)
      : context_(context),
        elements_(params.input.num_floats()),
        elements_per_example_(elements_ / params.input.shape[0]),
        stream_(params.stream),
        threshold_(static_cast<uint64_t>(static_cast<double>(params.rate) * 0x1p32)),
        factor_(1.0f / (1.0f - params.rate)),
        kept_(static_cast<size_t>(elements_)) {}

  absl::Status Forward(const float* x, float* y) override {
    const uint64_t seed = context_.seed() ^ stream_;
    const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    const int64_t first = context_.first_example() * elements_per_example_;
    ParallelFor(context_, elements_, kElementGrain, [=, this](int64_t begin, int64_t end) {
      // Four elements with consecutive indices, beginning at a multiple of 4, share a block of four random
      // words.
      for (int64_t i = begin; i < end;) {
        const auto counter = static_cast<uint64_t>((first + i) / 4);
        const auto words =
            Philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, key);
        for (auto word = static_cast<size_t>((first + i) % 4); word < 4 && i < end; ++word, ++i) {
          const bool kept = words[word] >= threshold_;
          kept_[static_cast<size_t>(i)] = kept;
          y[i] = kept ? x[i] * factor_ : 0.0f;  // avoids 0 * NaN
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float* dy, float* dx) override {
    ParallelFor(context_, elements_, kElementGrain, [=, this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        dx[i] = kept_[static_cast<size_t>(i)] != 0 ? dy[i] * factor_ : 0.0f;
      }
    });
    return absl::OkStatus();
  }

 private:
  onednn::Context& context_;
  const int64_t elements_, elements_per_example_;
  const uint64_t stream_;
  const uint64_t threshold_;   // an element is dropped if its random word is below this
  const float factor_;         // the kept elements are multiplied by this
  std::vector<uint8_t> kept_;  // [element] 0 or 1
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dropout>> MakeDropout(onednn::Context& context, const DropoutParams& params) {
  if (params.input.num_floats() < 1 || !(params.rate >= 0 && params.rate < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot apply dropout with rate ", params.rate, " to ", params.input.ToString()));
  }
  return std::make_unique<CpuDropout>(context, params);
}

}  // namespace cairn::kernels::cpu
