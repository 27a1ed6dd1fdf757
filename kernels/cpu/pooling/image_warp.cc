// Random transformations of images, row by row.
#include "kernels/image_warp.h"

#include "common/core/status.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

class CpuImageWarp final : public ImageWarp {
 public:
  CpuImageWarp(onednn::Context& context, const ImageWarpParams& params)
      : context_(context), formula_(params), examples_(params.input.shape[0]), stream_(params.stream) {}

  absl::Status Forward(const float* x, float* y) override {
    const uint64_t seed = context_.seed() ^ stream_;
    const int64_t first = context_.first_example();
    const int64_t height = formula_.height, width = formula_.width, channels = formula_.channels;
    ParallelFor(context_, examples_ * height, 1 + kElementGrain / (width * channels * kTaps),
                [=, this](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t n = i / height, h = i % height;
                    const AffineMap map = formula_.MapOf(static_cast<uint64_t>(first + n), seed);
                    const float* const image = x + n * height * width * channels;
                    float* to = y + i * width * channels;
                    for (int64_t w = 0; w < width; ++w) {
                      const float row = map.Row(h, w), column = map.Column(h, w);
                      for (int64_t c = 0; c < channels; ++c) {
                        *to++ = formula_.Sample(row, column, c, [=](int64_t at) { return image[at]; });
                      }
                    }
                  }
                });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kTaps = 4;  // elements that an output is made of

  onednn::Context& context_;
  const WarpFormula formula_;
  const int64_t examples_;
  const uint64_t stream_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ImageWarp>> MakeImageWarp(onednn::Context& context,
                                                         const ImageWarpParams& params) {
  CAIRN_RETURN_IF_ERROR(CheckImageWarp(params));
  return std::make_unique<CpuImageWarp>(context, params);
}

}  // namespace cairn::kernels::cpu
