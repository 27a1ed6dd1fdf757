#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using reference::Tensor;

// `matrix` [rows, columns] as [columns, rows].
Tensor Transposed(const Tensor& matrix) {
  const int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  Tensor transposed({columns, rows});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) transposed.at(c * rows + r) = matrix.at(r * columns + c);
  }
  return transposed;
}

class DenseConformance : public ConformanceTest {
 protected:
  void Check(int64_t batch, int64_t inputs, int64_t units, bool relu, bool use_bias,
             bool transposed = false) {
    SCOPED_TRACE(testing::Message() << "[" << batch << "," << inputs << "] -> " << units
                                    << (relu ? " relu" : "") << (use_bias ? "" : " no bias")
                                    << (transposed ? " transposed" : ""));
    const Tensor x = RandomTensor({batch, inputs}, 1), kernel = RandomTensor({inputs, units}, 2);
    const std::vector<double> bias = use_bias ? RandomTensor({units}, 3).values : std::vector<double>();
    auto op = device().ops().MakeDense(
        {.input = {x.shape}, .units = units, .use_bias = use_bias, .relu = relu, .transposed = transposed});
    ASSERT_TRUE(op.ok()) << op.status();
    const auto x_memory = Put(x), kernel_memory = Put(transposed ? Transposed(kernel) : kernel),
               bias_memory = Put(bias);
    const auto y_memory = Poisoned(batch * units);
    ASSERT_TRUE((*op)
                    ->Forward(x_memory->data(), kernel_memory->data(),
                              use_bias ? bias_memory->data() : nullptr, y_memory->data())
                    .ok());
    Tensor y = reference::Dense(x, kernel, bias);
    if (relu) reference::Relu(y);
    ASSERT_EQ((*op)->output(), (kernels::TensorDesc{y.shape}));
    const std::vector<float> computed = Get(*y_memory, {y.shape});
    ExpectNear(computed, y.values, inputs);

    Tensor dy = RandomTensor(y.shape, 4);
    const auto dy_memory = Put(dy), dx_memory = Poisoned(batch * inputs);
    const auto dkernel_memory = Poisoned(inputs * units), dbias_memory = Poisoned(use_bias ? units : 0);
    ASSERT_TRUE((*op)
                    ->Backward(x_memory->data(), kernel_memory->data(), y_memory->data(), dy_memory->data(),
                               dx_memory->data(), dkernel_memory->data(),
                               use_bias ? dbias_memory->data() : nullptr)
                    .ok());
    for (size_t i = 0; relu && i < computed.size(); ++i) {
      if (!(computed[i] > 0)) dy.values[i] = 0;
    }
    const reference::Gradients expected = reference::DenseBackward(x, kernel, dy);
    ExpectNear(Get(*dx_memory, {x.shape}), expected.dx.values, units);
    ExpectNear(Get(*dkernel_memory, {kernel.shape}),
               (transposed ? Transposed(expected.dkernel) : expected.dkernel).values, batch);
    if (use_bias) ExpectNear(Get(*dbias_memory, {{units}}), expected.dbias, batch);
  }
};

TEST_P(DenseConformance, SmallAndOddSizes) {
  for (int64_t batch : {1, 2, 7, 64, 65}) {
    for (int64_t inputs : {1, 3, 16, 65, 576}) {
      for (int64_t units : {1, 2, 10, 17, 64}) {
        Check(batch, inputs, units, true, true);
        Check(batch, inputs, units, false, units != 17);
        Check(batch, inputs, units, units == 17, units != 17, /*transposed=*/true);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(DenseConformance, LargeKernel) {
  Check(64, 784, 1030, true, true);
  Check(64, 784, 1030, false, false, /*transposed=*/true);
}

// Rows that are a multiple of 1 KB apart collide in caches, and are copied for the gradient by the kernel.
TEST_P(DenseConformance, RowsThatCollideInCaches) {
  Check(300, 256, 40, true, true);
  Check(300, 40, 256, true, true);
  Check(517, 24, 1024, false, true);
  Check(130, 512, 33, false, false, /*transposed=*/true);
  Check(300, 40, 256, true, true, /*transposed=*/true);
}

TEST_P(DenseConformance, AnImageIsRefused) {
  const auto op = device().ops().MakeDense({.input = {{1, 2, 2, 1}}, .units = 4});
  EXPECT_EQ(op.status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_CONFORMANCE(DenseConformance);

}  // namespace
}  // namespace cairn::conformance
