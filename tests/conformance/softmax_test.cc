#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using reference::Tensor;

class SoftmaxConformance : public ConformanceTest {
 protected:
  void Check(const Tensor& x) {
    SCOPED_TRACE(x.shape.ToString());
    auto op = device().ops().MakeSoftmax({x.shape});
    ASSERT_TRUE(op.ok()) << op.status();
    const int64_t count = x.shape.num_elements();
    const auto x_memory = Put(x), y_memory = Poisoned(count);
    ASSERT_TRUE((*op)->Forward(x_memory->data(), y_memory->data()).ok());
    const Tensor y = reference::Softmax(x);
    ExpectNear(Get(*y_memory, {x.shape}), y.values, x.shape[1]);

    const Tensor dy = RandomTensor(x.shape, 8);
    const auto dy_memory = Put(dy), dx_memory = Poisoned(count);
    ASSERT_TRUE(
        (*op)->Backward(x_memory->data(), y_memory->data(), dy_memory->data(), dx_memory->data()).ok());
    ExpectNear(Get(*dx_memory, {x.shape}), reference::SoftmaxBackward(y, dy).values, x.shape[1]);
  }
};

TEST_P(SoftmaxConformance, ManySizes) {
  for (int64_t batch : {1, 3, 65}) {
    for (int64_t classes : {1, 2, 10, 17, 100, 1000}) Check(RandomTensor({batch, classes}, 1));
  }
}

TEST_P(SoftmaxConformance, RowsOfManyClasses) {
  Check(RandomTensor({3, 4100}, 1));
  Check(RandomTensor({2, 8233}, 1));
}

TEST_P(SoftmaxConformance, LargeLogitsDoNotOverflow) {
  Tensor x = RandomTensor({4, 10}, 1);
  for (double& value : x.values) value = value * 500 + 20000;
  for (double& value : x.values) value = static_cast<float>(value);
  Check(x);
}

INSTANTIATE_CONFORMANCE(SoftmaxConformance);

class SoftmaxIn16Bits : public ConformanceTest {};

TEST_P(SoftmaxIn16Bits, ForwardAndBackward) {
  for (int64_t classes : {1, 3, 10, 64, 300}) {
    SCOPED_TRACE(classes);
    const Shape shape = {37, classes};
    auto op = device().ops().MakeSoftmax({.shape = shape, .type = type()}).value();
    EXPECT_EQ(op->output().type, type());
    const Tensor x = Rounded(RandomTensor(shape, 1), type()), dy = Rounded(RandomTensor(shape, 2), type());
    const int64_t floats = op->output().num_floats();
    const auto x_memory = PutAs(x, type()), dy_memory = PutAs(dy, type());
    const auto y_memory = Poisoned(floats), dx_memory = Poisoned(floats);
    ASSERT_TRUE(op->Forward(x_memory->data(), y_memory->data()).ok());
    ASSERT_TRUE(op->Backward(x_memory->data(), y_memory->data(), dy_memory->data(), dx_memory->data()).ok());
    const Tensor y = reference::Softmax(x);
    ExpectClose(GetAs(*y_memory, shape, type()), y.values);
    if (classes > 1) ExpectClose(GetAs(*dx_memory, shape, type()), reference::SoftmaxBackward(y, dy).values);
  }
}

INSTANTIATE_16_BIT_CONFORMANCE(SoftmaxIn16Bits);

}  // namespace
}  // namespace cairn::conformance
