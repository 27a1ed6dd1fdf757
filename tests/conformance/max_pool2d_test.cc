// Max pooling: windows that overlap, leave a remainder or reach into the padding; equal values; every layout.
#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using kernels::Layout;
using kernels::TensorDesc;
using reference::Tensor;

class MaxPool2DConformance : public ConformanceTest {
 protected:
  void Check(Tensor x, const reference::Windows& windows, Layout layout) {
    const TensorDesc x_desc = ActivationDesc(x.shape, layout);
    x = Rounded(x, type());
    SCOPED_TRACE(testing::Message() << x_desc.ToString() << ", window " << windows.height << "x"
                                    << windows.width << ", strides " << windows.stride_height << "x"
                                    << windows.stride_width << (windows.same ? " same" : " valid"));
    auto op = device().ops().MakePool2D(
        {.input = x_desc,
         .pool_height = windows.height,
         .pool_width = windows.width,
         .stride_height = windows.stride_height,
         .stride_width = windows.stride_width,
         .padding = windows.same ? kernels::Padding::kSame : kernels::Padding::kValid});
    ASSERT_TRUE(op.ok()) << op.status();
    const TensorDesc y_desc = (*op)->output();
    const reference::Pooled pooled = reference::MaxPool2D(x, windows);
    ASSERT_EQ(y_desc.shape, pooled.y.shape);
    const auto x_memory = PutActivation(x, layout), y_memory = Poisoned(y_desc.num_floats());
    ASSERT_TRUE((*op)->Forward(x_memory->data(), y_memory->data()).ok());
    ExpectNear(GetActivation(*y_memory, y_desc), pooled.y.values, 0);  // exact: nothing is computed

    const Tensor dy = Rounded(RandomTensor(pooled.y.shape, 9), type());
    const auto dy_memory = PutActivation(dy, y_desc.layout), dx_memory = Poisoned(x_desc.num_floats());
    ASSERT_TRUE(
        (*op)->Backward(x_memory->data(), y_memory->data(), dy_memory->data(), dx_memory->data()).ok());
    ExpectActivation(GetActivation(*dx_memory, x_desc), reference::MaxPool2DBackward(x, pooled, dy).values,
                     windows.height * windows.width);
  }
};

// Values that floats represent exactly, so that the reference finds the same maxima.
Tensor Exact(const Shape& shape, int64_t distinct) {
  Tensor tensor = RandomTensor(shape, 5);
  for (double& value : tensor.values) {
    value = std::floor(value * static_cast<double>(distinct)) / 1024;
  }
  return tensor;
}

TEST_P(MaxPool2DConformance, ShapesOfTheSeedNetwork) {
  for (Layout layout : layouts()) {
    Check(Exact({64, 26, 26, 32}, 1000), {2, 2, 2, 2, false}, layout);
    Check(Exact({64, 11, 11, 64}, 1000), {2, 2, 2, 2, false}, layout);
  }
}

TEST_P(MaxPool2DConformance, WindowsStridesAndPadding) {
  for (bool same : {false, true}) {
    for (const auto& [height, width] : {std::pair{2, 2}, {3, 3}, {1, 2}, {3, 1}}) {
      for (const auto& [stride_height, stride_width] : {std::pair{1, 1}, {2, 2}, {3, 2}}) {
        for (int64_t channels : {1, 3, 8, 16, 21}) {
          for (Layout layout : layouts()) {
            Check(Exact({2, 7, 8, channels}, 1000), {height, width, stride_height, stride_width, same},
                  layout);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(MaxPool2DConformance, TheFirstOfEqualMaximaReceivesTheGradient) {
  for (Layout layout : layouts()) {
    Check(Exact({3, 8, 8, 16}, 2), {2, 2, 2, 2, false}, layout);
    Check(Exact({3, 7, 7, 5}, 2), {3, 3, 1, 1, true}, layout);
  }
}

TEST_P(MaxPool2DConformance, NegativeValuesAreNotBeatenByPadding) {
  Tensor x = Exact({1, 5, 5, 3}, 1000);
  for (double& value : x.values) value -= 10;
  for (Layout layout : layouts()) Check(x, {3, 3, 2, 2, true}, layout);
}

TEST_P(MaxPool2DConformance, WindowsOfMoreThan256Places) {
  Check(Exact({2, 20, 19, 3}, 1000), {17, 17, 2, 1, true}, Layout::kRowMajor);
}

TEST_P(MaxPool2DConformance, EveryBatchFrom1To65) {
  for (int64_t batch = 1; batch <= 65; ++batch) {
    Check(Exact({batch, 5, 4, 16}, 1000), {2, 2, 2, 2, false}, layouts().back());
  }
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(MaxPool2DConformance);

}  // namespace
}  // namespace cairn::conformance
