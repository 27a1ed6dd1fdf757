#include "kernels/window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn::kernels {
namespace {

struct Windows {
  int64_t height, width;                // of a window
  int64_t stride_height, stride_width;  // between the beginnings of adjacent windows
  Padding padding;
};

absl::StatusOr<Shape> Slide(const Shape& input, const Windows& windows, int64_t channels) {
  if (input.rank() != 4) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input ", input.ToString(), " is not an image: expected [batch, height, width, channels]"));
  }
  const int64_t smallest = std::min({input[0], input[1], input[2], input[3], windows.height, windows.width,
                                     windows.stride_height, windows.stride_width, channels});
  if (smallest < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sizes below 1: input ", input.ToString(), ", window ", windows.height, "x", windows.width,
        ", strides ", windows.stride_height, "x", windows.stride_width, ", ", channels, " channels out"));
  }
  const int64_t height = MakeWindow(input[1], windows.height, windows.stride_height, windows.padding).output;
  const int64_t width = MakeWindow(input[2], windows.width, windows.stride_width, windows.padding).output;
  if (height < 1 || width < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a window of ", windows.height, "x", windows.width,
                                                   " does not fit an image of ", input[1], "x", input[2]));
  }
  return Shape({input[0], height, width, channels});
}

}  // namespace

Window MakeWindow(int64_t input, int64_t window, int64_t stride, Padding padding) {
  if (padding == Padding::kValid) return {.output = input < window ? 0 : (input - window) / stride + 1};
  const int64_t output = (input + stride - 1) / stride;
  const int64_t pad = std::max<int64_t>((output - 1) * stride + window - input, 0);
  return {.output = output, .pad_before = pad / 2, .pad_after = pad - pad / 2};
}

absl::StatusOr<Shape> OutputShape(const Conv2DParams& params) {
  const Shape& input = params.input.shape;
  if (std::min({params.groups, params.dilation_height, params.dilation_width}) < 1 ||
      (input.rank() == 4 && (input[3] % params.groups != 0 || params.filters % params.groups != 0))) {
    return absl::InvalidArgumentError(
        absl::StrCat(params.groups, " groups must divide the ", input.rank() == 4 ? input[3] : 0,
                     " channels and the ", params.filters, " filters; dilations ", params.dilation_height,
                     "x", params.dilation_width, " must be at least 1"));
  }
  return Slide(input,
               {.height = Dilated(params.kernel_height, params.dilation_height),
                .width = Dilated(params.kernel_width, params.dilation_width),
                .stride_height = params.stride_height,
                .stride_width = params.stride_width,
                .padding = params.padding},
               params.filters);
}

absl::StatusOr<Shape> OutputShape(const Conv2DTransposeParams& params) {
  const Shape& input = params.input.shape;
  if (input.rank() != 4 || std::min({input.num_elements(), params.filters, params.kernel_height,
                                     params.kernel_width, params.stride_height, params.stride_width}) < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a transposed convolution of ", params.filters, " filters ", params.kernel_height, "x",
        params.kernel_width, ", strides ", params.stride_height, "x", params.stride_width, ", over ",
        input.ToString(), ": expected [batch, height, width, channels], sizes of at least 1"));
  }
  const auto extent = [&](int64_t in, int64_t kernel, int64_t stride) {
    return in * stride + (params.padding == Padding::kValid ? std::max<int64_t>(kernel - stride, 0) : 0);
  };
  return Shape({input[0], extent(input[1], params.kernel_height, params.stride_height),
                extent(input[2], params.kernel_width, params.stride_width), params.filters});
}

absl::StatusOr<Shape> OutputShape(const Pool2DParams& params) {
  if (params.pooling == Pooling::kSum)
    return absl::InvalidArgumentError("windows are pooled by their maximum or average, not by their sum");
  const Shape& input = params.input.shape;
  return Slide(input,
               {.height = params.pool_height,
                .width = params.pool_width,
                .stride_height = params.stride_height,
                .stride_width = params.stride_width,
                .padding = params.padding},
               input.rank() == 4 ? input[3] : 1);
}

absl::StatusOr<Shape> OutputShape(const DepthWindowsParams& params) {
  const Shape& input = params.input.shape;
  if (input.rank() != 4 || params.input.layout != Layout::kRowMajor ||
      std::min({input.num_elements(), params.window, params.stride, params.dilation}) < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "windows of ", params.window, ", stride ", params.stride, ", dilation ", params.dilation, ", over ",
        params.input.ToString(), ": expected row-major [batch, depth, places, channels]"));
  }
  const int64_t windows =
      MakeWindow(input[1], Dilated(params.window, params.dilation), params.stride, params.padding).output;
  if (windows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a window of ", params.window, " does not fit a depth of ", input[1]));
  }
  return Shape({input[0], windows, input[2], params.window * input[3]});
}

Conv2DParams TransposedConvolution(const Conv2DTransposeParams& params, const Shape& output) {
  return {.input = {.shape = output},
          .filters = params.input.shape[3],
          .kernel_height = params.kernel_height,
          .kernel_width = params.kernel_width,
          .stride_height = params.stride_height,
          .stride_width = params.stride_width,
          .padding = params.padding,
          .use_bias = false};
}

}  // namespace cairn::kernels
