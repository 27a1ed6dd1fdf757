// Rotary position embeddings.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/conformance/backends.h"
#include "tests/conformance/unary.h"

namespace cairn::conformance {
namespace {

using reference::Tensor;

class RotaryConformance : public UnaryOpTest {};

Tensor Rotated(const Tensor& x, const kernels::RotaryParams& params) {
  const auto half = static_cast<int64_t>(params.frequencies.size()), width = 2 * half;
  const int64_t steps = x.shape[1], vectors = x.shape.num_elements() / width,
                of_step = vectors / x.shape[0] / steps;
  Tensor y(x.shape);
  for (int64_t vector = 0; vector < vectors; ++vector) {
    const auto step =
        static_cast<double>(vector / of_step % steps + (params.first == nullptr ? 0 : *params.first));
    for (int64_t i = 0; i < half; ++i) {
      const auto a = static_cast<size_t>(vector * width + i), b = a + static_cast<size_t>(half);
      const double angle = step * params.frequencies[static_cast<size_t>(i)];
      const double cosine = std::cos(angle), sine = std::sin(angle);
      y.values[a] = x.values[a] * cosine - x.values[b] * sine;
      y.values[b] = x.values[b] * cosine + x.values[a] * sine;
    }
  }
  return y;
}

TEST_P(RotaryConformance, RotatesThePairsOfEachStep) {
  for (const Shape& shape : {Shape{2, 5, 3, 8}, Shape{1, 1, 2}, Shape{3, 7, 6}, Shape{2, 33, 2, 64}}) {
    SCOPED_TRACE(shape.ToString());
    kernels::RotaryParams params = {.input = ActivationDesc(shape), .frequencies = {}};
    for (int64_t i = 0; i < shape[shape.rank() - 1] / 2; ++i)
      params.frequencies.push_back(std::pow(0.3, static_cast<double>(i)));
    Check(device().ops().MakeRotary(params), RandomTensor(shape, 1), kernels::Layout::kRowMajor,
          [&](const Tensor& x) { return Rotated(x, params); });
  }
}

TEST_P(RotaryConformance, MayOverwriteItsInput) {
  const kernels::RotaryParams params = {.input = ActivationDesc({2, 3, 4}), .frequencies = {1, 0.5}};
  const auto op = device().ops().MakeRotary(params).value();
  const Tensor x = Rounded(RandomTensor({2, 3, 4}, 1), type());
  const auto memory = PutActivation(x, kernels::Layout::kRowMajor);
  ASSERT_TRUE(op->Forward(memory->data(), memory->data()).ok());
  ExpectActivation(GetActivation(*memory, params.input), Rotated(x, params).values, 4);
}

TEST_P(RotaryConformance, TheFirstStepIsReadAtEachCall) {
  int64_t first = 0;
  const kernels::RotaryParams params = {
      .input = ActivationDesc({2, 2, 3, 4}), .frequencies = {1, 0.5}, .first = &first, .steps = 7};
  const auto op = device().ops().MakeRotary(params).value();
  const Tensor x = Rounded(RandomTensor({2, 2, 3, 4}, 1), type());
  const auto memory = PutActivation(x, kernels::Layout::kRowMajor);
  const auto y = Poisoned(params.input.num_floats());
  for (const int64_t step : {3, 0, 5}) {
    first = step;
    ASSERT_TRUE(op->Forward(memory->data(), y->data()).ok());
    ExpectActivation(GetActivation(*y, params.input), Rotated(x, params).values, 4);
  }
  first = 6;
  EXPECT_EQ(op->Forward(memory->data(), y->data()).message(),
            "cannot rotate 2 steps from step 6 on: there are factors of 7");
}

TEST_P(RotaryConformance, RefusesAWidthThatDoesNotFit) {
  for (const Shape& shape : {Shape{2, 3, 5}, Shape{2, 4}}) {
    EXPECT_THAT(std::string(device()
                                .ops()
                                .MakeRotary({.input = ActivationDesc(shape), .frequencies = {1, 0.5}})
                                .status()
                                .message()),
                testing::HasSubstr("by 2 frequencies"));
  }
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(RotaryConformance);

}  // namespace
}  // namespace cairn::conformance
