// Adds a border of zeros around every image. The type of the elements does not matter.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/pack.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"

namespace cairn::kernels::cuda {
namespace {

// An image [height, width, channels] at (top, left) of a larger one, in units.
struct Frame {
  int64_t examples, height, width, channels;
  int64_t outer_height, outer_width;
  int64_t top, left;
};

// One thread for each unit of y, grid-strided. Deterministic.
template <typename Unit>
__global__ void Pad(Frame frame, const Unit* x, Unit* y) {
  const int64_t units = frame.examples * frame.outer_height * frame.outer_width * frame.channels;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < units; i += CAIRN_GLOBAL_THREADS) {
    const int64_t pixel = i / frame.channels, channel = i - pixel * frame.channels;
    const int64_t row = pixel / frame.outer_width, column = pixel - row * frame.outer_width;
    const int64_t n = row / frame.outer_height;
    const int64_t h = row - n * frame.outer_height - frame.top, w = column - frame.left;
    const bool inside = h >= 0 && h < frame.height && w >= 0 && w < frame.width;
    y[i] = inside ? x[((n * frame.height + h) * frame.width + w) * frame.channels + channel] : Unit{};
  }
}

// One thread for each unit of dx, grid-strided. Deterministic.
template <typename Unit>
__global__ void Crop(Frame frame, const Unit* dy, Unit* dx) {
  const int64_t units = frame.examples * frame.height * frame.width * frame.channels;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < units; i += CAIRN_GLOBAL_THREADS) {
    const int64_t pixel = i / frame.channels, channel = i - pixel * frame.channels;
    const int64_t row = pixel / frame.width, column = pixel - row * frame.width;
    const int64_t n = row / frame.height, h = row - n * frame.height;
    const int64_t outer_row = n * frame.outer_height + h + frame.top;
    dx[i] = dy[(outer_row * frame.outer_width + column + frame.left) * frame.channels + channel];
  }
}

template <typename Unit>
class CudaZeroPad2D final : public UnaryOp {
 public:
  CudaZeroPad2D(Context& context, TensorDesc output, const Frame& frame)
      : context_(context), output_(std::move(output)), frame_(frame) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    const int64_t units = frame_.examples * frame_.outer_height * frame_.outer_width * frame_.channels;
    return CAIRN_LAUNCH(Pad<Unit>, GridFor(units), kBlock, 0, context_.stream(), frame_, As<Unit>(x),
                        As<Unit>(y));
  }
  absl::Status Backward(const float* /*x*/, const float* /*y*/, const float* dy, float* dx) override {
    const int64_t units = frame_.examples * frame_.height * frame_.width * frame_.channels;
    return CAIRN_LAUNCH(Crop<Unit>, GridFor(units), kBlock, 0, context_.stream(), frame_, As<Unit>(dy),
                        As<Unit>(dx));
  }

 private:
  Context& context_;
  const TensorDesc output_;
  const Frame frame_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeZeroPad2D(Context& context, const ZeroPad2DParams& params) {
  const Shape& input = params.input.shape;
  if (input.rank() != 4 || input.num_elements() < 1 || params.input.layout != Layout::kRowMajor ||
      std::min({params.top, params.bottom, params.left, params.right}) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot add padding of ", params.top, ", ", params.bottom,
                                                   ", ", params.left, " and ", params.right, " around ",
                                                   params.input.ToString()));
  }
  const TensorDesc output = params.input.WithShape(
      {input[0], input[1] + params.top + params.bottom, input[2] + params.left + params.right, input[3]});
  const int64_t pixel_bytes = input[3] * BytesOf(params.input.type);
  return VisitMovedUnit(pixel_bytes, [&](auto* unit) -> absl::StatusOr<std::unique_ptr<UnaryOp>> {
    using Unit = std::remove_pointer_t<decltype(unit)>;
    const Frame frame = {.examples = input[0],
                         .height = input[1],
                         .width = input[2],
                         .channels = pixel_bytes / int64_t{sizeof(Unit)},
                         .outer_height = output.shape[1],
                         .outer_width = output.shape[2],
                         .top = params.top,
                         .left = params.left};
    return std::make_unique<CudaZeroPad2D<Unit>>(context, output, frame);
  });
}

}  // namespace cairn::kernels::cuda
