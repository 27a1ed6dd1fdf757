// Cumulative sums, and sums of whole channels, which are exact for integers.
#include <gmock/gmock.h>

#include <cstdint>
#include <vector>

#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using reference::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CumulativeSumConformance : public ConformanceTest {};

TEST_P(CumulativeSumConformance, SumsUpAlongTheSteps) {
  for (const Shape& shape : {Shape{2, 5, 1}, Shape{3, 1, 4}, Shape{1, 300, 1}, Shape{2, 9, 33},
                             Shape{1, 20, 70}, Shape{70, 3, 1}}) {
    SCOPED_TRACE(shape.ToString());
    const kernels::TensorDesc desc = ActivationDesc(shape);
    auto op = device().ops().MakeCumulativeSum({.input = desc});
    ASSERT_TRUE(op.ok()) << op.status();
    Tensor x(shape), dy(shape), y(shape), dx(shape);
    const int64_t steps = shape[1], columns = shape[2];
    for (size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] = i % 4 == 0 ? 0.5 : 0;
      dy.values[i] = i % 5 == 0 ? -1 : 0;
    }
    for (int64_t n = 0; n < shape[0]; ++n) {
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0, rest = 0;
        for (int64_t i = 0; i < steps; ++i) {
          const int64_t at = (n * steps + i) * columns + c, back = (n * steps + steps - 1 - i) * columns + c;
          y.at(at) = sum += x.at(at);
          dx.at(back) = rest += dy.at(back);
        }
      }
    }
    const auto x_memory = PutActivation(x), dy_memory = PutActivation(dy),
               y_memory = Poisoned(desc.num_floats()), dx_memory = Poisoned(desc.num_floats());
    ASSERT_TRUE((*op)->Forward(x_memory->data(), y_memory->data()).ok());
    ExpectNear(GetActivation(*y_memory, desc), y.values, 0);
    ASSERT_TRUE((*op)->Backward(nullptr, nullptr, dy_memory->data(), dx_memory->data()).ok());
    ExpectNear(GetActivation(*dx_memory, desc), dx.values, 0);
  }
}

TEST_P(CumulativeSumConformance, OtherInputsAreRefused) {
  EXPECT_THAT(
      std::string(device().ops().MakeCumulativeSum({.input = ActivationDesc({2, 3})}).status().message()),
      HasSubstr("expected row-major floats [n, steps, c]"));
  EXPECT_FALSE(device().ops().MakeCumulativeSum({.input = {.shape = {2, 3, 1}, .type = DType::kInt32}}).ok());
}

// A third of 1, three times, is not 1.
TEST_P(CumulativeSumConformance, ASumOfAChannelIsExact) {
  const kernels::TensorDesc desc = ActivationDesc({1, 7, 7, 2});
  auto op = device().ops().MakeGlobalPool(kernels::Pooling::kSum, desc).value();
  Tensor x(desc.shape), dy({1, 2});
  for (size_t i = 0; i < x.values.size(); ++i) x.values[i] = i % 2 == 0 ? 1 : i == 1 ? 3 : 0;
  dy.values = {0.5, 2};
  const auto x_memory = PutActivation(x), y = Poisoned(2), dy_memory = PutActivation(dy),
             dx = Poisoned(desc.num_floats());
  ASSERT_TRUE(op->Forward(x_memory->data(), y->data()).ok());
  EXPECT_THAT(GetActivation(*y, op->output()), ElementsAre(49, 3));
  ASSERT_TRUE(op->Backward(x_memory->data(), y->data(), dy_memory->data(), dx->data()).ok());
  const std::vector<float> gradient = GetActivation(*dx, desc);
  for (size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(gradient[i], i % 2 == 0 ? 0.5f : 2.0f);
  EXPECT_THAT(
      std::string(
          device().ops().MakePool2D({.pooling = kernels::Pooling::kSum, .input = desc}).status().message()),
      HasSubstr("not by their sum"));
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(CumulativeSumConformance);

}  // namespace
}  // namespace cairn::conformance
