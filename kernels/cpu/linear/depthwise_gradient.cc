#include "kernels/cpu/linear/depthwise_gradient.h"

#include <algorithm>

#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

constexpr int64_t kPieces = 16;  // of work, at least, where the batch has so many examples

DepthwiseShape ShapeOf(const onednn::ConvolutionArgs& args) {
  return {.rows = args.source[2],
          .columns = args.source[3],
          .out_rows = args.destination[2],
          .out_columns = args.destination[3],
          .kernel_height = args.kernel[3],
          .kernel_width = args.kernel[4],
          .stride_height = args.strides[0],
          .stride_width = args.strides[1],
          .pad_top = args.pad_before[0],
          .pad_left = args.pad_before[1]};
}

}  // namespace

bool DepthwiseGradient::Takes(const Conv2DParams& params, Layout source, Layout destination) {
  const int64_t channels = params.input.shape[3];
  return params.groups == channels && params.filters == channels && params.dilation_height == 1 &&
         params.dilation_width == 1 && source == destination && source != Layout::kRowMajor &&
         BlockOf(source) == CAIRN_BEST_LOOPS(DepthwiseLoops).lanes;
}

DepthwiseGradient::DepthwiseGradient(onednn::Context& context, const onednn::ConvolutionArgs& args)
    : context_(context),
      shape_(ShapeOf(args)),
      batch_(args.source[0]),
      channels_(args.source[1]),
      blocks_((channels_ + code_.lanes - 1) / code_.lanes),
      parts_(std::clamp<int64_t>(kPieces / blocks_, 1, batch_)),
      zeros_(static_cast<size_t>(shape_.columns * code_.lanes)),
      sums_(static_cast<size_t>(blocks_ * parts_ * (shape_.taps() + 1) * code_.lanes)) {}

absl::Status DepthwiseGradient::Run(const float* source, const float* dy, float* dkernel, float* dbias) {
  const int64_t lanes = code_.lanes, taps = shape_.taps();
  const int64_t in = shape_.rows * shape_.columns * lanes;
  const int64_t out_pixels = shape_.out_rows * shape_.out_columns, out = out_pixels * lanes;
  const int64_t of_part = (taps + 1) * lanes;
  ParallelFor(context_, blocks_ * parts_, 1, [&](int64_t piece, int64_t) {
    const int64_t block = piece / parts_, part = piece % parts_;
    float* const sums = sums_.data() + piece * of_part;
    std::fill_n(sums, of_part, 0.0f);
    for (int64_t n = batch_ * part / parts_; n < batch_ * (part + 1) / parts_; ++n) {
      const int64_t image = n * blocks_ + block;
      code_.kernel_gradient(shape_, source + image * in, zeros_.data(), dy + image * out, sums);
      if (dbias != nullptr) code_.bias_gradient(out_pixels, dy + image * out, sums + taps * lanes);
    }
  });
  for (int64_t block = 0; block < blocks_; ++block) {
    float* const sums = sums_.data() + block * parts_ * of_part;
    for (int64_t part = 1; part < parts_; ++part) {
      for (int64_t i = 0; i < of_part; ++i) sums[i] += sums[part * of_part + i];
    }
    const int64_t first = block * lanes, count = std::min(lanes, channels_ - first);
    for (int64_t tap = 0; tap < taps; ++tap)
      std::copy_n(sums + tap * lanes, count, dkernel + tap * channels_ + first);
    if (dbias != nullptr) std::copy_n(sums + taps * lanes, count, dbias + first);
  }
  return absl::OkStatus();
}

}  // namespace cairn::kernels::cpu
