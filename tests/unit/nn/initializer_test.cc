#include "nn/layer/initializer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace cairn::nn {
namespace {

using nlohmann::json;

std::vector<float> Draw(const json& description, const Shape& shape, uint64_t seed = 1,
                        absl::string_view variable = "layer/kernel") {
  const auto spec = ParseInitializer(description);
  EXPECT_TRUE(spec.ok()) << spec.status();
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  Initialize(*spec, shape, seed, variable, absl::MakeSpan(values));
  return values;
}

struct Moments {
  double mean = 0, stddev = 0, largest = 0;
};
Moments MomentsOf(const std::vector<float>& values) {
  Moments moments;
  for (float value : values) moments.mean += value;
  moments.mean /= static_cast<double>(values.size());
  for (float value : values) {
    moments.stddev += (value - moments.mean) * (value - moments.mean);
    moments.largest = std::max(moments.largest, std::fabs(static_cast<double>(value)));
  }
  moments.stddev = std::sqrt(moments.stddev / static_cast<double>(values.size()));
  return moments;
}

const Shape kMatrix = {400, 250};            // 100,000 values: moments are within 1 %
const Shape kConvolution = {3, 3, 64, 128};  // fan in 576, fan out 1152

// Limits, standard deviations and bounds are computed by hand from Keras' definitions.
TEST(Initializer, GlorotUniformHasKerasLimit) {
  const double limit = std::sqrt(6.0 / (400 + 250));
  const Moments moments = MomentsOf(Draw("glorot_uniform", kMatrix));
  EXPECT_LE(moments.largest, limit * (1 + 1e-6));
  EXPECT_GT(moments.largest, limit * 0.999);
  EXPECT_NEAR(moments.mean, 0, limit * 0.01);
  EXPECT_NEAR(moments.stddev, limit / std::sqrt(3.0), limit * 0.01);
}

TEST(Initializer, GlorotUniformOfAFirstConvolutionHasTheLimitInKerasFile) {
  // fan in 9, fan out 288: sqrt(6 / 297) = 0.1421. The largest value in Keras' own file is 0.1415.
  const Moments moments = MomentsOf(Draw("GlorotUniform", {3, 3, 1, 32}));
  EXPECT_LE(moments.largest, 0.14214);
  EXPECT_GT(moments.largest, 0.135);
}

TEST(Initializer, FansOfAConvolutionCountTheReceptiveField) {
  EXPECT_NEAR(MomentsOf(Draw("he_uniform", kConvolution)).largest, std::sqrt(6.0 / 576), 1e-4);
  EXPECT_NEAR(MomentsOf(Draw("lecun_uniform", kConvolution)).largest, std::sqrt(3.0 / 576), 1e-4);
  EXPECT_NEAR(MomentsOf(Draw("glorot_uniform", kConvolution)).largest, std::sqrt(6.0 / (576 + 1152)), 1e-4);
}

TEST(Initializer, NormalVariantsAreTruncatedAndKeepTheirVariance) {
  const std::pair<const char*, double> cases[] = {
      {"glorot_normal", 2.0 / (400 + 250)}, {"he_normal", 2.0 / 400}, {"lecun_normal", 1.0 / 400}};
  for (const auto& [name, variance] : cases) {
    const Moments moments = MomentsOf(Draw(name, kMatrix));
    const double stddev = std::sqrt(variance);
    EXPECT_NEAR(moments.stddev, stddev, stddev * 0.01) << name;
    EXPECT_LE(moments.largest, 2 * stddev / 0.87962566 * (1 + 1e-6)) << name;
    EXPECT_GT(moments.largest, 2 * stddev / 0.87962566 * 0.99) << name;
  }
}

TEST(Initializer, TruncatedNormalIsNotCorrected) {
  const Moments moments = MomentsOf(Draw("truncated_normal", kMatrix));
  EXPECT_LE(moments.largest, 0.1 * (1 + 1e-6));
  EXPECT_NEAR(moments.stddev, 0.05 * 0.87962566, 0.0005);
}

TEST(Initializer, RandomNormalHasItsMeanAndTails) {
  const Moments moments =
      MomentsOf(Draw({{"class_name", "RandomNormal"}, {"config", {{"mean", 3}, {"stddev", 0.5}}}}, kMatrix));
  EXPECT_NEAR(moments.mean, 3, 0.01);
  EXPECT_NEAR(moments.stddev, 0.5, 0.005);
  EXPECT_GT(moments.largest, 3 + 3 * 0.5);
}

TEST(Initializer, RandomUniformStaysInItsRange) {
  const auto values =
      Draw({{"class_name", "RandomUniform"}, {"config", {{"minval", 1}, {"maxval", 2}, {"seed", nullptr}}}},
           kMatrix);
  EXPECT_GE(*std::min_element(values.begin(), values.end()), 1);
  EXPECT_LE(*std::max_element(values.begin(), values.end()), 2);
}

json VarianceScaling(json config) {
  return {{"class_name", "VarianceScaling"}, {"config", std::move(config)}};
}

TEST(Initializer, VarianceScalingEqualsTheNamedInitializers) {
  EXPECT_EQ(Draw("variance_scaling", kMatrix), Draw("lecun_normal", kMatrix)) << "its defaults";
  EXPECT_EQ(Draw(VarianceScaling({{"scale", 2.0}, {"mode", "fan_in"}, {"distribution", "uniform"}}), kMatrix),
            Draw("he_uniform", kMatrix));
  EXPECT_EQ(
      Draw(VarianceScaling({{"mode", "fan_avg"}, {"distribution", "Normal"}, {"seed", nullptr}}), kMatrix),
      Draw("glorot_normal", kMatrix));
}

TEST(Initializer, VarianceScalingSupportsFanOutAndUntruncatedNormal) {
  const double stddev = std::sqrt(3.0 / 1152);
  const Moments moments = MomentsOf(
      Draw(VarianceScaling({{"scale", 3}, {"mode", "fan_out"}, {"distribution", "untruncated_normal"}}),
           kConvolution));
  EXPECT_NEAR(moments.stddev, stddev, stddev * 0.01);
  EXPECT_GT(moments.largest, 3 * stddev);
}

TEST(Initializer, VarianceScalingErrorsNameTheInvalidOption) {
  const auto fault = [](const json& config) {
    return std::string(ParseInitializer(VarianceScaling(config)).status().message());
  };
  EXPECT_EQ(fault({{"scale", 0}}), "initializer VarianceScaling: scale 0 must be above 0");
  EXPECT_EQ(fault({{"mode", "fan_up"}}),
            "initializer VarianceScaling: mode \"fan_up\" is not one of fan_in, fan_out, fan_avg");
  EXPECT_EQ(fault({{"distribution", "cauchy"}}),
            "initializer VarianceScaling: distribution \"cauchy\" is not one of truncated_normal, "
            "untruncated_normal, uniform");
  EXPECT_EQ(fault({{"mode", 3}}), "initializer VarianceScaling: mode 3 is not supported");
}

// The largest deviation of the rows' (or columns') dot products, in a [rows, columns] matrix, from those of
// orthogonal vectors of length `gain`.
double LargestDeviationFromOrthonormal(const std::vector<float>& values, size_t rows, size_t columns,
                                       double gain) {
  const bool of_columns = rows >= columns;
  const size_t vectors = of_columns ? columns : rows, length = of_columns ? rows : columns;
  const auto at = [&](size_t vector, size_t k) -> double {
    return of_columns ? values[k * columns + vector] : values[vector * columns + k];
  };
  double largest = 0;
  for (size_t a = 0; a < vectors; ++a) {
    for (size_t b = 0; b <= a; ++b) {
      double product = 0;
      for (size_t k = 0; k < length; ++k) product += at(a, k) * at(b, k);
      largest = std::max(largest, std::abs(product - (a == b ? gain * gain : 0)));
    }
  }
  return largest;
}

TEST(Initializer, OrthogonalMatricesHaveOrthonormalRowsOrColumns) {
  EXPECT_LT(LargestDeviationFromOrthonormal(Draw("orthogonal", {60, 20}), 60, 20, 1), 1e-6) << "tall";
  EXPECT_LT(LargestDeviationFromOrthonormal(Draw("orthogonal", {20, 60}), 20, 60, 1), 1e-6) << "wide";
  EXPECT_LT(LargestDeviationFromOrthonormal(Draw("orthogonal", {50, 50}), 50, 50, 1), 1e-6) << "square";
  EXPECT_LT(LargestDeviationFromOrthonormal(Draw("orthogonal", {3, 3, 4, 8}), 36, 8, 1), 1e-6) << "kernel";
  const json doubled = {{"class_name", "Orthogonal"}, {"config", {{"gain", 2.0}}}};
  EXPECT_LT(LargestDeviationFromOrthonormal(Draw(doubled, {9, 9}), 9, 9, 2), 4e-6) << "gain";
}

// R's diagonal is positive if each column of Q has a positive dot product with the drawn column that it was
// computed from. The first column of Q is the first drawn column, normalized.
TEST(Initializer, OrthogonalHasKerasSigns) {
  const auto drawn = Draw({{"class_name", "RandomNormal"}, {"config", {{"stddev", 1.0}}}}, {5, 3});
  const auto q = Draw("orthogonal", {5, 3});
  double square = 0;
  for (size_t r = 0; r < 5; ++r) square += static_cast<double>(drawn[r * 3]) * drawn[r * 3];
  for (size_t r = 0; r < 5; ++r) EXPECT_NEAR(q[r * 3], drawn[r * 3] / std::sqrt(square), 1e-6);
  for (size_t c = 0; c < 3; ++c) {
    double diagonal = 0;
    for (size_t r = 0; r < 5; ++r) diagonal += static_cast<double>(q[r * 3 + c]) * drawn[r * 3 + c];
    EXPECT_GT(diagonal, 0) << "column " << c;
  }
}

TEST(Initializer, IdentityHasItsGainOnTheDiagonal) {
  const json doubled = {{"class_name", "Identity"}, {"config", {{"gain", 2}}}};
  EXPECT_EQ(Draw(doubled, {2, 3}), (std::vector<float>{2, 0, 0, 0, 2, 0}));
}

TEST(CheckShape, MatrixInitializersNeedRankTwo) {
  EXPECT_TRUE(CheckShape(*ParseInitializer("orthogonal"), {3, 3, 4, 8}).ok());
  EXPECT_FALSE(CheckShape(*ParseInitializer("orthogonal"), {8}).ok());
  EXPECT_TRUE(CheckShape(*ParseInitializer("identity"), {3, 3}).ok());
  EXPECT_EQ(CheckShape(*ParseInitializer("identity"), {3, 3, 1}).message(),
            "initializer Identity needs a shape of rank 2, not [3,3,1]");
  EXPECT_TRUE(CheckShape(*ParseInitializer("zeros"), {8}).ok());
}

TEST(Initializer, ConstantsAreExact) {
  EXPECT_EQ(Draw("zeros", {3}), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(Draw("Ones", {2}), (std::vector<float>{1, 1}));
  EXPECT_EQ(Draw({{"class_name", "Constant"}, {"config", {{"value", 0.25}}}}, {2}),
            (std::vector<float>{0.25, 0.25}));
}

TEST(Initializer, ValuesDependOnlyOnSeedAndName) {
  const auto values = Draw("glorot_uniform", {5, 5}, 1, "a/kernel");
  EXPECT_EQ(Draw("glorot_uniform", {5, 5}, 1, "a/kernel"), values);
  EXPECT_NE(Draw("glorot_uniform", {5, 5}, 2, "a/kernel"), values);
  EXPECT_NE(Draw("glorot_uniform", {5, 5}, 1, "b/kernel"), values);
}

TEST(Initializer, ASeedInTheModelFileReplacesTheJobs) {
  const json seeded = {{"class_name", "GlorotUniform"}, {"config", {{"seed", 42}}}};
  EXPECT_EQ(Draw(seeded, {5, 5}, 1), Draw(seeded, {5, 5}, 2));
}

TEST(Initializer, ScalarsAndVectorsHaveFansToo) {
  EXPECT_NEAR(ResolveFan(*ParseInitializer("glorot_uniform"), {4}).spread, std::sqrt(3.0 / 4), 1e-12);
  EXPECT_NEAR(ResolveFan(*ParseInitializer("glorot_uniform"), {}).spread, std::sqrt(3.0), 1e-12);
}

}  // namespace
}  // namespace cairn::nn
