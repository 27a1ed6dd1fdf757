// Dot products of pairs of rows: forward against the definition, backward against central differences.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/conformance/backends.h"
#include "tests/conformance/numerical.h"

namespace cairn::conformance {
namespace {

using kernels::PairDotsParams;
using reference::Tensor;

class PairDotsConformance : public ConformanceTest {
 protected:
  // `rows` of `width` floats for each of three examples.
  void Check(int64_t rows, int64_t width, PairDotsParams params) {
    const Shape shape = {3, rows, width};
    params.input = ActivationDesc(shape);
    SCOPED_TRACE(testing::Message() << shape.ToString() << ", first rows " << params.first_rows << ", self "
                                    << params.self << ", square " << params.square << ", normalize "
                                    << params.normalize);
    auto made = device().ops().MakePairDots(params);
    ASSERT_TRUE(made.ok()) << made.status();
    kernels::UnaryOp& op = **made;
    Tensor x = Rounded(RandomTensor(shape, 1), type());
    const auto x_memory = PutActivation(x), y_memory = Poisoned(op.output().num_floats());
    ASSERT_TRUE(op.Forward(x_memory->data(), y_memory->data()).ok());
    const std::vector<double> y = Definition(x, params);
    ASSERT_EQ(op.output().shape.num_elements(), static_cast<int64_t>(y.size()));
    ExpectActivation(GetActivation(*y_memory, op.output()), y, width);

    const Tensor dy = Rounded(RandomTensor(op.output().shape, 2), type());
    const auto dy_memory = PutActivation(dy), dx_memory = Poisoned(params.input.num_floats());
    ASSERT_TRUE(op.Backward(x_memory->data(), y_memory->data(), dy_memory->data(), dx_memory->data()).ok());
    ExpectActivationGradient(GetActivation(*dx_memory, params.input), x.values,
                             [&] { return Dot(Definition(x, params), dy.values); });
  }

  static double Product(const Tensor& x, int64_t example, int64_t i, int64_t j) {
    const int64_t rows = x.shape[1], width = x.shape[2];
    double sum = 0;
    for (int64_t k = 0; k < width; ++k) {
      sum += x.values[static_cast<size_t>((example * rows + i) * width + k)] *
             x.values[static_cast<size_t>((example * rows + j) * width + k)];
    }
    return sum;
  }

  static std::vector<double> Definition(const Tensor& x, const PairDotsParams& params) {
    std::vector<double> y;
    const int64_t rows = x.shape[1];
    for (int64_t example = 0; example < x.shape[0]; ++example) {
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < rows; ++j) {
          const bool pair = params.first_rows > 0 ? i < params.first_rows && j >= params.first_rows
                                                  : j < i || (j == i && params.self);
          if (!pair && !params.square) continue;
          const double norms =
              params.normalize ? std::sqrt(Product(x, example, i, i) * Product(x, example, j, j)) : 1;
          y.push_back(pair ? Product(x, example, i, j) / norms : 0);
        }
      }
    }
    return y;
  }
};

TEST_P(PairDotsConformance, AgreesWithItsDefinition) {
  for (const int64_t rows : {2, 3, 9, 27}) {
    for (const int64_t width : {1, 3, 16, 21}) {
      for (const bool self : {false, true}) {
        for (const bool square : {false, true})
          Check(rows, width, {.input = {}, .self = self, .square = square});
      }
      for (const bool normalize : {false, true}) {
        if (width == 1 && normalize) continue;  // the norm of one float has no smooth gradient
        Check(rows, width, {.input = {}, .first_rows = (rows + 1) / 2, .normalize = normalize});
      }
    }
  }
}

TEST_P(PairDotsConformance, ARowMayBeMultipliedByItselfAlone) {
  for (const int64_t width : {2, 5, 70}) Check(1, width, {.input = {}, .self = true});
}

TEST_P(PairDotsConformance, ARowOfZerosHasNoDirection) {
  auto op =
      device().ops().MakePairDots({.input = ActivationDesc({1, 2, 2}), .first_rows = 1, .normalize = true});
  ASSERT_TRUE(op.ok()) << op.status();
  Tensor x({1, 2, 2}), one({1, 1, 1});
  x.values = {0, 0, 3, 4};
  one.values = {1};
  const auto x_memory = PutActivation(x), dy = PutActivation(one), y = Poisoned(1), dx = Poisoned(4);
  ASSERT_TRUE((*op)->Forward(x_memory->data(), y->data()).ok());
  ASSERT_TRUE((*op)->Backward(x_memory->data(), y->data(), dy->data(), dx->data()).ok());
  EXPECT_EQ(GetActivation(*y, (*op)->output())[0], 0);
}

TEST_P(PairDotsConformance, ShapesWithoutPairsAreRefused) {
  const auto refusal = [&](const PairDotsParams& params) {
    return std::string(device().ops().MakePairDots(params).status().message());
  };
  EXPECT_THAT(refusal({.input = ActivationDesc({2, 1, 3})}), testing::EndsWith("there are no pairs"));
  EXPECT_THAT(refusal({.input = ActivationDesc({2, 3, 3}), .first_rows = 3}),
              testing::EndsWith("too few rows"));
  EXPECT_THAT(refusal({.input = ActivationDesc({2, 3})}),
              testing::EndsWith("expected row-major [n, rows, width]"));
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(PairDotsConformance);

}  // namespace
}  // namespace cairn::conformance
