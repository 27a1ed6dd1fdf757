// Convolution: every combination of batch, size, channels, window, stride, padding and layout below.
#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using kernels::Layout;
using kernels::TensorDesc;
using reference::Tensor;

struct Case {
  int64_t batch, height, width, channels, filters;
  int64_t kernel_height = 3, kernel_width = 3, stride_height = 1, stride_width = 1;
  bool same = false;
  bool relu = false;
  bool bias = true;
};

class Conv2DConformance : public ConformanceTest {
 protected:
  void Check(const Case& c, Layout layout);
};

void Conv2DConformance::Check(const Case& c, Layout layout) {
  const TensorDesc x_desc = {{c.batch, c.height, c.width, c.channels}, layout};
  SCOPED_TRACE(testing::Message() << "batch " << c.batch << ", " << c.height << "x" << c.width << "x"
                                  << c.channels << " -> " << c.filters << ", kernel " << c.kernel_height
                                  << "x" << c.kernel_width << ", strides " << c.stride_height << "x"
                                  << c.stride_width << (c.same ? " same" : " valid")
                                  << (c.relu ? " relu" : "") << (c.bias ? "" : " no bias") << ", input "
                                  << x_desc.ToString());
  const reference::Windows windows = {c.kernel_height, c.kernel_width, c.stride_height, c.stride_width,
                                      c.same};
  const Tensor x = RandomTensor(x_desc.shape, 1);
  const Tensor kernel = RandomTensor({c.kernel_height, c.kernel_width, c.channels, c.filters}, 2);
  const std::vector<double> bias = c.bias ? RandomTensor({c.filters}, 3).values : std::vector<double>();

  auto op = device().ops().MakeConv2D({.input = x_desc,
                                       .filters = c.filters,
                                       .kernel_height = c.kernel_height,
                                       .kernel_width = c.kernel_width,
                                       .stride_height = c.stride_height,
                                       .stride_width = c.stride_width,
                                       .padding = c.same ? kernels::Padding::kSame : kernels::Padding::kValid,
                                       .use_bias = c.bias,
                                       .relu = c.relu});
  ASSERT_TRUE(op.ok()) << op.status();
  const TensorDesc y_desc = (*op)->output();
  const auto x_memory = Put(x, layout), kernel_memory = Put(kernel), bias_memory = Put(bias);
  const auto y_memory = Poisoned(y_desc.num_floats());
  ASSERT_TRUE((*op)
                  ->Forward(x_memory->data(), kernel_memory->data(), c.bias ? bias_memory->data() : nullptr,
                            y_memory->data())
                  .ok());
  Tensor y = reference::Conv2D(x, windows, kernel, bias);
  if (c.relu) reference::Relu(y);
  ASSERT_EQ(y_desc.shape, y.shape);
  const int64_t window_terms = c.kernel_height * c.kernel_width * c.channels;
  {
    SCOPED_TRACE("y");
    ExpectNear(Get(*y_memory, y_desc), y.values, window_terms);
  }

  Tensor dy = RandomTensor(y.shape, 4);
  const auto dy_memory = Put(dy, y_desc.layout);
  const auto dx_memory = Poisoned(x_desc.num_floats());
  const auto dkernel_memory = Poisoned(kernel.shape.num_elements());
  const auto dbias_memory = Poisoned(c.bias ? c.filters : 0);
  ASSERT_TRUE((*op)
                  ->Backward(x_memory->data(), kernel_memory->data(), y_memory->data(), dy_memory->data(),
                             dx_memory->data(), dkernel_memory->data(),
                             c.bias ? dbias_memory->data() : nullptr)
                  .ok());
  // The relu's mask comes from the values that the backend computed, because rounding may move a zero.
  if (c.relu) {
    const std::vector<float> computed = Get(*y_memory, y_desc);
    for (size_t i = 0; i < computed.size(); ++i) {
      if (!(computed[i] > 0)) dy.values[i] = 0;
    }
  }
  const reference::Gradients expected = reference::Conv2DBackward(x, windows, kernel, dy);
  const int64_t places = y.shape[0] * y.shape[1] * y.shape[2];
  {
    SCOPED_TRACE("dx");
    ExpectNear(Get(*dx_memory, x_desc), expected.dx.values, c.kernel_height * c.kernel_width * c.filters);
  }
  {
    SCOPED_TRACE("dkernel");
    ExpectNear(Get(*dkernel_memory, {kernel.shape}), expected.dkernel.values, places);
  }
  if (c.bias) {
    SCOPED_TRACE("dbias");
    ExpectNear(Get(*dbias_memory, {{c.filters}}), expected.dbias, places);
  }
}

TEST_P(Conv2DConformance, ShapesOfTheSeedNetwork) {
  Check({.batch = 64, .height = 28, .width = 28, .channels = 1, .filters = 32, .relu = true},
        Layout::kRowMajor);
  for (Layout layout : layouts()) {
    Check({.batch = 8, .height = 13, .width = 13, .channels = 32, .filters = 64, .relu = true}, layout);
    Check({.batch = 8, .height = 5, .width = 5, .channels = 64, .filters = 64, .relu = true}, layout);
  }
}

TEST_P(Conv2DConformance, OddChannelsInEveryLayout) {
  for (int64_t channels : {1, 2, 3, 5, 8, 13, 16, 17, 20}) {
    for (int64_t filters : {1, 3, 7, 10, 16, 24, 33}) {
      for (Layout layout : layouts()) {
        Check({.batch = 2,
               .height = 7,
               .width = 6,
               .channels = channels,
               .filters = filters,
               .relu = filters % 2 == 1},
              layout);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Conv2DConformance, WindowsStridesAndPadding) {
  for (bool same : {false, true}) {
    for (const auto& [kernel_height, kernel_width] : {std::pair{1, 1}, {2, 3}, {3, 2}, {5, 5}, {7, 1}}) {
      for (const auto& [stride_height, stride_width] : {std::pair{1, 1}, {2, 2}, {1, 3}, {4, 2}}) {
        for (const auto& [height, width] : {std::pair{7, 7}, {8, 9}, {11, 5}}) {
          Check({.batch = 3,
                 .height = height,
                 .width = width,
                 .channels = 5,
                 .filters = 18,
                 .kernel_height = kernel_height,
                 .kernel_width = kernel_width,
                 .stride_height = stride_height,
                 .stride_width = stride_width,
                 .same = same,
                 .relu = stride_height == 1},
                Layout::kRowMajor);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Conv2DConformance, EveryBatchFrom1To65) {
  for (int64_t batch = 1; batch <= 65; ++batch) {
    Check(
        {.batch = batch, .height = 6, .width = 5, .channels = 16, .filters = 20, .same = true, .relu = true},
        layouts().back());
    if (HasFatalFailure()) return;
  }
}

TEST_P(Conv2DConformance, WithoutBias) {
  for (int64_t channels : {1, 3, 16}) {
    Check({.batch = 3,
           .height = 6,
           .width = 6,
           .channels = channels,
           .filters = 16,
           .relu = true,
           .bias = false},
          Layout::kRowMajor);
  }
}

TEST_P(Conv2DConformance, AWindowLargerThanTheImageIsRefused) {
  const auto op = device().ops().MakeConv2D(
      {.input = {{1, 2, 2, 1}}, .filters = 4, .kernel_height = 3, .kernel_width = 3});
  EXPECT_EQ(op.status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_CONFORMANCE(Conv2DConformance);

}  // namespace
}  // namespace cairn::conformance
