// Masks of time steps, and means over the steps that they count.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/conformance/backends.h"
#include "tests/conformance/numerical.h"

namespace cairn::conformance {
namespace {

using reference::Tensor;

class StepMaskConformance : public ConformanceTest {
 protected:
  std::vector<float> MaskOf(const kernels::StepMaskParams& params, kernels::DeviceMemory& x) {
    auto op = device().ops().MakeStepMask(params);
    EXPECT_TRUE(op.ok()) << op.status();
    const auto y = Poisoned((*op)->output().num_floats());
    EXPECT_TRUE((*op)->Forward(x.data(), y->data()).ok());
    return Get(*y, (*op)->output());
  }
};

TEST_P(StepMaskConformance, AStepCountsIfAnyElementDiffers) {
  for (const int64_t width : {1, 2, 7, 70}) {
    Tensor x({5, width});
    std::fill(x.values.begin(), x.values.end(), -2);
    x.values.front() = 1;                              // of step 0
    x.values[static_cast<size_t>(3 * width - 1)] = 0;  // the last of step 2
    x.values[static_cast<size_t>(4 * width)] = NAN;    // the first of step 4
    const auto memory = PutActivation(x);
    EXPECT_THAT(MaskOf({.input = ActivationDesc({5, width}), .masked = -2}, *memory),
                testing::ElementsAre(1, 0, 1, 0, 1))
        << width;
  }
}

TEST_P(StepMaskConformance, IdsOfEveryIntegerTypeAreCompared) {
  for (const DType type : {DType::kInt32, DType::kInt64, DType::kUint8}) {
    const auto ids = PutIntegers({0, 3, 0, 200, 0}, type);
    EXPECT_THAT(MaskOf({.input = {.shape = {5, 1}, .type = type}}, *ids),
                testing::ElementsAre(0, 1, 0, 1, 0));
  }
}

TEST_P(StepMaskConformance, AMeanIsOverTheStepsThatCount) {
  for (const Shape& shape : {Shape{3, 4, 5}, Shape{2, 1, 1}, Shape{5, 9, 40}}) {
    const int64_t steps = shape[1];
    auto op = device().ops().MakeMaskedMean({.input = ActivationDesc(shape)});
    ASSERT_TRUE(op.ok()) << op.status();
    Tensor x = Rounded(RandomTensor(shape, 1), type()), mask({shape[0], steps});
    for (size_t i = 0; i < mask.values.size(); ++i) {
      const auto step = static_cast<int64_t>(i) % steps;
      mask.values[i] = step == 0 || (i * 7) % 3 == 0 ? 1 : 0;
    }
    const auto definition = [&] {
      std::vector<double> y;
      for (int64_t n = 0; n < shape[0]; ++n) {
        for (int64_t c = 0; c < shape[2]; ++c) {
          double sum = 0, count = 0;
          for (int64_t step = 0; step < steps; ++step) {
            const double m = mask.values[static_cast<size_t>(n * steps + step)];
            sum += m * x.values[static_cast<size_t>((n * steps + step) * shape[2] + c)];
            count += m;
          }
          y.push_back(sum / count);
        }
      }
      return y;
    };
    const auto x_memory = PutActivation(x), mask_memory = Put(mask);
    const auto y = Poisoned((*op)->output().num_floats());
    ASSERT_TRUE((*op)->Forward({x_memory->data(), mask_memory->data()}, y->data()).ok());
    ExpectActivation(GetActivation(*y, (*op)->output()), definition(), steps);

    const Tensor dy = Rounded(RandomTensor((*op)->output().shape, 2), type());
    const auto dy_memory = PutActivation(dy), dx = Poisoned(ActivationDesc(shape).num_floats());
    ASSERT_TRUE(
        (*op)
            ->Backward({x_memory->data(), mask_memory->data()}, dy_memory->data(), {dx->data(), nullptr})
            .ok());
    ExpectActivationGradient(GetActivation(*dx, ActivationDesc(shape)), x.values,
                             [&] { return Dot(definition(), dy.values); });
  }
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(StepMaskConformance);

}  // namespace
}  // namespace cairn::conformance
