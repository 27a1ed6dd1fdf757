// The windows of a convolution along the depth of volumes, side by side.
#include <algorithm>
#include <utility>

#include "common/core/status.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/window.h"

namespace cairn::kernels::cpu {
namespace {

class CpuDepthWindows final : public UnaryOp {
 public:
  CpuDepthWindows(onednn::Context& context, TensorDesc output, const DepthWindowsParams& params)
      : context_(context),
        output_(std::move(output)),
        params_(params),
        depth_(params.input.shape[1]),
        places_(params.input.shape[2]),
        channels_(params.input.shape[3]),
        before_(MakeWindow(depth_, Dilated(params.window, params.dilation), params.stride, params.padding)
                    .pad_before) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    const int64_t windows = output_.shape[1], width = params_.window * channels_;
    ParallelFor(context_, output_.shape[0] * windows, 1, [=, this](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t k = 0; k < params_.window; ++k) {
          const int64_t d = row % windows * params_.stride + k * params_.dilation - before_;
          float* to = y + row * places_ * width + k * channels_;
          if (d < 0 || d >= depth_) {
            for (int64_t place = 0; place < places_; ++place)
              std::fill_n(to + place * width, channels_, 0.0f);
            continue;
          }
          const float* from = x + (row / windows * depth_ + d) * places_ * channels_;
          for (int64_t place = 0; place < places_; ++place) {
            std::copy_n(from + place * channels_, channels_, to + place * width);
          }
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float*, const float*, const float* dy, float* dx) override {
    const int64_t windows = output_.shape[1], width = params_.window * channels_;
    ParallelFor(context_, output_.shape[0] * depth_, 1, [=, this](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        float* const to = dx + row * places_ * channels_;
        std::fill_n(to, places_ * channels_, 0.0f);
        for (int64_t k = 0; k < params_.window; ++k) {
          const int64_t first = row % depth_ + before_ - k * params_.dilation, o = first / params_.stride;
          if (first < 0 || first % params_.stride != 0 || o >= windows) continue;
          const float* from = dy + (row / depth_ * windows + o) * places_ * width + k * channels_;
          for (int64_t place = 0; place < places_; ++place) {
            for (int64_t c = 0; c < channels_; ++c) to[place * channels_ + c] += from[place * width + c];
          }
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  onednn::Context& context_;
  const TensorDesc output_;
  const DepthWindowsParams params_;
  const int64_t depth_, places_, channels_;
  const int64_t before_;  // zeros before the volume
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeDepthWindows(onednn::Context& context,
                                                          const DepthWindowsParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(params));
  return std::make_unique<CpuDepthWindows>(context, TensorDesc{.shape = shape}, params);
}

}  // namespace cairn::kernels::cpu
