// The maximum, mean or sum of each channel of an image, from any layout to [n, c].
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cpu {
namespace {

class CpuGlobalPool final : public UnaryOp {
 public:
  CpuGlobalPool(onednn::Context& context, Pooling pooling, const TensorDesc& input)
      : context_(context),
        pooling_(pooling),
        output_({.shape = {input.shape[0], input.shape[3]}}),
        pixels_(input.shape[1] * input.shape[2]),
        channels_(input.shape[3]),
        lanes_(input.layout == Layout::kRowMajor ? channels_ : BlockOf(input.layout)),
        blocks_((channels_ + lanes_ - 1) / lanes_),
        divisor_(pooling == Pooling::kAverage ? static_cast<float>(pixels_) : 1.0f),
        argmax_(pooling == Pooling::kMax ? static_cast<size_t>(output_.shape.num_elements()) : 0) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    ForSlabs([=, this](int64_t slab, int64_t channel, int64_t lanes) {
      const float* from = x + slab * pixels_ * lanes_;
      float* to = y + channel;
      if (pooling_ != Pooling::kMax) {
        int64_t c = 0;
        for (; c + kAtOnce <= lanes; c += kAtOnce) Average<kAtOnce>(from + c, to + c);
        for (; c + kAtOnce / 2 <= lanes; c += kAtOnce / 2) Average<kAtOnce / 2>(from + c, to + c);
        for (; c < lanes; ++c) Average<1>(from + c, to + c);
        return;
      }
      int64_t* argmax = argmax_.data() + channel;
      for (int64_t c = 0; c < lanes; ++c) {
        to[c] = -std::numeric_limits<float>::infinity();
        argmax[c] = 0;
        for (int64_t pixel = 0; pixel < pixels_; ++pixel) {
          if (!IsLarger(from[pixel * lanes_ + c], to[c])) continue;
          to[c] = from[pixel * lanes_ + c];
          argmax[c] = pixel;
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float*, const float*, const float* dy, float* dx) override {
    ForSlabs([=, this](int64_t slab, int64_t channel, int64_t lanes) {
      float* to = dx + slab * pixels_ * lanes_;
      const float* from = dy + channel;
      if (pooling_ == Pooling::kMax || lanes < lanes_) std::fill_n(to, pixels_ * lanes_, 0.0f);
      if (pooling_ == Pooling::kMax) {
        const int64_t* argmax = argmax_.data() + channel;
        for (int64_t c = 0; c < lanes; ++c) to[argmax[c] * lanes_ + c] = from[c];
        return;
      }
      int64_t c = 0;
      for (; c + kAtOnce <= lanes; c += kAtOnce) Spread<kAtOnce>(from + c, to + c);
      for (; c + kAtOnce / 2 <= lanes; c += kAtOnce / 2) Spread<kAtOnce / 2>(from + c, to + c);
      for (; c < lanes; ++c) Spread<1>(from + c, to + c);
    });
    return absl::OkStatus();
  }

 private:
  // The means or sums of `kCount` adjacent channels, and their gradients. Local arrays stay in registers. A block has
  // 16 or 8.
  static constexpr int kAtOnce = 16;
  template <int kCount>
  void Average(const float* from, float* to) const {
    float sums[kCount] = {};
    for (int64_t pixel = 0; pixel < pixels_; ++pixel, from += lanes_) {
      for (int c = 0; c < kCount; ++c) sums[c] += from[c];
    }
    for (int c = 0; c < kCount; ++c) to[c] = sums[c] / divisor_;
  }
  template <int kCount>
  void Spread(const float* from, float* to) const {
    float gradients[kCount];
    for (int c = 0; c < kCount; ++c) gradients[c] = from[c] / divisor_;
    for (int64_t pixel = 0; pixel < pixels_; ++pixel, to += lanes_) std::copy_n(gradients, kCount, to);
  }
  // Calls body(slab, first element of its channels in the output, channels without padding).
  template <typename Body>
  void ForSlabs(const Body& body) const {
    ParallelFor(context_, output_.shape[0] * blocks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slab = begin; slab < end; ++slab) {
        const int64_t first = slab % blocks_ * lanes_;
        body(slab, slab / blocks_ * channels_ + first, std::min(lanes_, channels_ - first));
      }
    });
  }

  onednn::Context& context_;
  const Pooling pooling_;
  const TensorDesc output_;
  const int64_t pixels_, channels_;
  const int64_t lanes_;          // channels that are adjacent
  const int64_t blocks_;         // channel blocks per example
  const float divisor_;          // of a sum
  std::vector<int64_t> argmax_;  // [output] the pixel of the maximum
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeGlobalPool(onednn::Context& context, Pooling pooling,
                                                        const TensorDesc& input) {
  if (input.shape.rank() != 4 || input.shape.num_elements() < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input ", input.ToString(), " is not an image: expected [batch, height, width, channels]"));
  }
  return std::make_unique<CpuGlobalPool>(context, pooling, input);
}

}  // namespace cairn::kernels::cpu
