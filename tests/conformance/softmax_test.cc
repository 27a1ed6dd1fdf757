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

TEST_P(SoftmaxConformance, LargeLogitsDoNotOverflow) {
  Tensor x = RandomTensor({4, 10}, 1);
  for (double& value : x.values) value = value * 500 + 20000;
  for (double& value : x.values) value = static_cast<float>(value);
  Check(x);
}

INSTANTIATE_CONFORMANCE(SoftmaxConformance);

}  // namespace
}  // namespace cairn::conformance
