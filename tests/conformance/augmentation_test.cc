// Random changes of elements, and random transformations of images.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/conformance/backends.h"
#include "tests/conformance/numerical.h"

namespace cairn::conformance {
namespace {

using kernels::FillMode;
using kernels::ImageWarpParams;
using kernels::Interpolation;
using kernels::NoiseKind;
using kernels::NoiseParams;
using reference::Tensor;

class AugmentationConformance : public ConformanceTest {
 protected:
  // y of Forward() and dx of Backward(), for examples from `first_example` on.
  struct Passes {
    std::vector<float> y, dx;
  };
  Passes Run(const NoiseParams& params, const Tensor& x, const Tensor& dy, int64_t first_example = 0) {
    auto op = device().ops().MakeNoise(params).value();
    const auto x_memory = PutActivation(x), dy_memory = PutActivation(dy);
    const auto y = Poisoned(params.input.num_floats()), dx = Poisoned(params.input.num_floats());
    EXPECT_TRUE(device().SeedRandom(3, first_example).ok());
    EXPECT_TRUE(op->Forward(x_memory->data(), y->data()).ok());
    EXPECT_TRUE(op->Backward(dy_memory->data(), dx->data()).ok());
    return {GetActivation(*y, params.input), GetActivation(*dx, params.input)};
  }

  std::vector<float> Warped(const ImageWarpParams& params, const Tensor& x) {
    auto op = device().ops().MakeImageWarp(params).value();
    const auto x_memory = PutActivation(x), y = Poisoned(params.input.num_floats());
    EXPECT_TRUE(device().SeedRandom(3, 0).ok());
    EXPECT_TRUE(op->Forward(x_memory->data(), y->data()).ok());
    return GetActivation(*y, params.input);
  }
};

double MeanOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}
double DeviationOf(const std::vector<double>& values) {
  const double mean = MeanOf(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST_P(AugmentationConformance, NormalNoiseHasItsMomentsAndTheGradientOfItsFactor) {
  const Shape shape = {50, 201};
  Tensor x(shape), ones(shape);
  for (double& value : x.values) value = 2;
  for (double& value : ones.values) value = 1;
  for (const NoiseKind kind : {NoiseKind::kAdd, NoiseKind::kMultiply}) {
    const Passes passes =
        Run({.kind = kind, .input = ActivationDesc(shape), .amount = 0.5f, .stream = 7}, x, ones);
    const std::vector<double> y(passes.y.begin(), passes.y.end());
    EXPECT_NEAR(MeanOf(y), 2, 0.03);  // three deviations of the mean of 10,050 numbers
    EXPECT_NEAR(DeviationOf(y), kind == NoiseKind::kAdd ? 0.5 : 1, 0.03);
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(passes.dx[i], kind == NoiseKind::kAdd ? 1 : y[i] / 2, 0.02) << i;
    }
  }
}

TEST_P(AugmentationConformance, AlphaDropoutKeepsTheMomentsAndDropsANaN) {
  const Shape shape = {40, 256};
  Tensor x = Rounded(RandomTensor(shape, 1), type()), ones(shape);
  for (double& value : x.values) value *= std::sqrt(3.0);  // a variance of 1
  x = Rounded(x, type());
  for (double& value : ones.values) value = 1;
  const NoiseParams params = {
      .kind = NoiseKind::kAlphaDropout, .input = ActivationDesc(shape), .amount = 0.25f, .stream = 7};
  const Passes passes = Run(params, x, ones);
  const double lowest = -1.7580993408473766;  // SELU's limit
  const double a = 1 / std::sqrt(0.75 * (1 + 0.25 * lowest * lowest)), b = -a * lowest * 0.25;
  int64_t dropped = 0;
  for (size_t i = 0; i < passes.y.size(); ++i) {
    const bool lost = passes.dx[i] == 0;
    dropped += lost;
    ASSERT_NEAR(passes.y[i], lost ? a * lowest + b : a * x.values[i] + b,
                type() == kernels::ElementType::kFloat32 ? 1e-5 : 0.02);
  }
  EXPECT_NEAR(static_cast<double>(dropped) / static_cast<double>(passes.y.size()), 0.25, 0.02);
  const std::vector<double> y(passes.y.begin(), passes.y.end());
  EXPECT_NEAR(MeanOf(y), 0, 0.05);
  EXPECT_NEAR(DeviationOf(y), 1, 0.05);
  for (double& value : x.values) value = std::nan("");
  const Passes of_nan = Run(params, x, ones);
  for (size_t i = 0; i < of_nan.y.size(); ++i) ASSERT_EQ(std::isnan(of_nan.y[i]), passes.dx[i] != 0);
}

TEST_P(AugmentationConformance, NoiseDependsOnThePlaceOfAnExample) {
  constexpr int64_t kWidth = 5001;  // the CPU divides the whole among threads
  const Shape shape = {6, kWidth};
  const Tensor zeros(shape);
  for (const NoiseKind kind : {NoiseKind::kAdd, NoiseKind::kUniform}) {
    const NoiseParams all = {.kind = kind, .input = ActivationDesc(shape), .amount = 2, .low = 1};
    NoiseParams last = all;
    last.input = ActivationDesc({3, kWidth});
    const std::vector<float> y = Run(all, zeros, zeros).y,
                             part = Run(last, Tensor({3, kWidth}), Tensor({3, kWidth}), 3).y;
    EXPECT_EQ(std::vector<float>(y.begin() + 3 * kWidth, y.end()), part);
    if (kind == NoiseKind::kUniform) {
      for (const float value : y) EXPECT_TRUE(value >= 1 && value <= 3) << value;
    }
  }
}

// The index of an axis that has the value of index `i`, by a list that repeats as SciPy's documentation shows it.
int64_t Folded(int64_t i, int64_t extent, FillMode fill) {
  switch (fill) {
    case FillMode::kConstant:
      return i >= 0 && i < extent ? i : -1;
    case FillMode::kNearest:
      return std::clamp<int64_t>(i, 0, extent - 1);
    case FillMode::kWrap:
      while (i < 0) i += extent;
      return i % extent;
    case FillMode::kReflect:
      while (i < 0 || i >= extent) i = i < 0 ? -1 - i : 2 * extent - 1 - i;
      return i;
  }
  return -1;
}

// The images after a transformation whose ranges are single numbers.
std::vector<double> WarpedBy(const ImageWarpParams& params, const Tensor& x) {
  std::vector<double> y;
  const int64_t height = x.shape[1], width = x.shape[2];
  const double middle = static_cast<double>(height - 1) / 2, center = static_cast<double>(width - 1) / 2;
  const double cosine = std::cos(double{params.rotation.low}), sine = std::sin(double{params.rotation.low});
  const double column_zoom = params.keeps_proportions ? params.row_zoom.low : params.column_zoom.low;
  for (int64_t n = 0; n < x.shape[0]; ++n)
    for (int64_t h = 0; h < height; ++h)
      for (int64_t w = 0; w < width; ++w)
        for (int64_t c = 0; c < x.shape[3]; ++c) {
          const double down = static_cast<double>(h) - middle, across = static_cast<double>(w) - center;
          const double row = middle + (1 + params.row_zoom.low) * (cosine * down + sine * across) -
                             params.row_shift.low * static_cast<double>(height);
          const double column = center + (1 + column_zoom) * (cosine * across - sine * down) -
                                params.column_shift.low * static_cast<double>(width);
          if (params.interpolation == Interpolation::kNearest) {
            const int64_t from_h = Folded(std::llround(row), height, params.fill),
                          from_w = Folded(std::llround(column), width, params.fill);
            y.push_back(from_h < 0 || from_w < 0 ? params.fill_value : x.at(x.index(n, from_h, from_w, c)));
            continue;
          }
          double sum = 0;
          for (auto i = static_cast<int64_t>(std::floor(row)); i <= std::floor(row) + 1; ++i)
            for (auto j = static_cast<int64_t>(std::floor(column)); j <= std::floor(column) + 1; ++j) {
              const int64_t from_h = Folded(i, height, params.fill), from_w = Folded(j, width, params.fill);
              const double weight = std::max(0.0, 1 - std::fabs(row - static_cast<double>(i))) *
                                    std::max(0.0, 1 - std::fabs(column - static_cast<double>(j)));
              sum += weight *
                     (from_h < 0 || from_w < 0 ? params.fill_value : x.at(x.index(n, from_h, from_w, c)));
            }
          y.push_back(sum);
        }
  return y;
}

TEST_P(AugmentationConformance, ImagesAreRotatedZoomedAndShifted) {
  const Shape shape = {2, 6, 7, 3};
  const Tensor x = Rounded(RandomTensor(shape, 1), type());
  for (const Interpolation interpolation : {Interpolation::kBilinear, Interpolation::kNearest}) {
    for (const FillMode fill :
         {FillMode::kConstant, FillMode::kNearest, FillMode::kReflect, FillMode::kWrap}) {
      ImageWarpParams params = {
          .input = ActivationDesc(shape), .fill = fill, .fill_value = 0.5f, .interpolation = interpolation};
      const auto check = [&](const char* what) {
        SCOPED_TRACE(testing::Message() << what << ", fill " << static_cast<int>(fill));
        ExpectActivation(Warped(params, x), WarpedBy(params, x), 16);
      };
      check("nothing");
      params.row_shift = {0.4f, 0.4f};
      params.column_shift = {-1.7f, -1.7f};
      check("shift");
      params.rotation = {0.7f, 0.7f};
      params.row_zoom = {-0.3f, -0.3f};
      params.column_zoom = {0.9f, 0.9f};
      check("all");
      params.keeps_proportions = true;
      check("proportions");
    }
  }
}

TEST_P(AugmentationConformance, AFlipHasProbabilityOneHalf) {
  constexpr int64_t kExamples = 64;
  const Shape shape = {kExamples, 3, 4, 2};
  const Tensor x = Rounded(RandomTensor(shape, 1), type());
  const std::vector<float> y =
      Warped({.input = ActivationDesc(shape), .flips_rows = true, .flips_columns = true, .stream = 5}, x);
  int64_t seen[2][2] = {};
  for (int64_t n = 0; n < kExamples; ++n) {
    for (const bool rows : {false, true}) {
      for (const bool columns : {false, true}) {
        bool equal = true;
        for (int64_t h = 0; h < 3; ++h)
          for (int64_t w = 0; w < 4; ++w)
            for (int64_t c = 0; c < 2; ++c) {
              const double from = x.at(x.index(n, rows ? 2 - h : h, columns ? 3 - w : w, c));
              equal = equal && y[static_cast<size_t>(x.index(n, h, w, c))] == static_cast<float>(from);
            }
        seen[rows][columns] += equal;
      }
    }
  }
  EXPECT_EQ(seen[0][0] + seen[0][1] + seen[1][0] + seen[1][1], kExamples);
  for (const bool rows : {false, true}) {
    for (const bool columns : {false, true}) EXPECT_NEAR(seen[rows][columns], kExamples / 4, 12);
  }
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(AugmentationConformance);

}  // namespace
}  // namespace cairn::conformance
