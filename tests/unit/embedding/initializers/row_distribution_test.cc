#include "embedding/initializers/row_distribution.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::embedding {
namespace {

using Kind = RowDistribution::Kind;
using ::testing::HasSubstr;

constexpr TableShape kFixed = {.vocabulary_size = 1000, .dim = 24};
constexpr TableShape kDynamic = {.vocabulary_size = 0, .dim = 24};

void ExpectIs(const InitializerConfig& config, Kind kind, double center, double spread) {
  const auto distribution = ResolveInitializer(config, kFixed);
  ASSERT_TRUE(distribution.ok()) << distribution.status();
  EXPECT_EQ(distribution->kind, kind) << config.name;
  EXPECT_DOUBLE_EQ(distribution->center, center) << config.name;
  EXPECT_NEAR(distribution->spread, spread, 1e-12) << config.name;
}

std::string InitializerFault(const InitializerConfig& config, const TableShape& shape = kFixed) {
  const auto distribution = ResolveInitializer(config, shape);
  return distribution.ok() ? "no fault" : std::string(distribution.status().message());
}

TEST(ResolveInitializer, DefaultsAreThoseOfKeras) {
  ExpectIs({"Zeros"}, Kind::kConstant, 0, 0);
  ExpectIs({"Ones"}, Kind::kConstant, 1, 0);
  ExpectIs({"Constant"}, Kind::kConstant, 0, 0);
  ExpectIs({"RandomUniform"}, Kind::kUniform, 0, 0.05);
  ExpectIs({"RandomNormal"}, Kind::kNormal, 0, 0.05);
  ExpectIs({"TruncatedNormal"}, Kind::kTruncatedNormal, 0, 0.05);
}

TEST(ResolveInitializer, ParametersHaveKerasNames) {
  ExpectIs({"Constant", {{"value", -2.5}}}, Kind::kConstant, -2.5, 0);
  ExpectIs({"RandomUniform", {{"minval", 1}, {"maxval", 4}}}, Kind::kUniform, 2.5, 1.5);
  ExpectIs({"RandomNormal", {{"mean", 3}, {"stddev", 0.25}}}, Kind::kNormal, 3, 0.25);
}

TEST(ResolveInitializer, AcceptsKerasShortNames) {
  ExpectIs({"uniform"}, Kind::kUniform, 0, 0.05);
  ExpectIs({"normal"}, Kind::kNormal, 0, 0.05);
  ExpectIs({"random_uniform"}, Kind::kUniform, 0, 0.05);
  ExpectIs({"truncated_normal"}, Kind::kTruncatedNormal, 0, 0.05);
  ExpectIs({"glorot_uniform"}, Kind::kUniform, 0, std::sqrt(6.0 / 1024));
}

TEST(ResolveInitializer, FansAreThoseOfAVariableOfVocabularyByDim) {
  ExpectIs({"GlorotUniform"}, Kind::kUniform, 0, std::sqrt(6.0 / 1024));
  ExpectIs({"GlorotNormal"}, Kind::kTruncatedNormal, 0, std::sqrt(2.0 / 1024) / 0.87962566103423978);
  ExpectIs({"HeUniform"}, Kind::kUniform, 0, std::sqrt(6.0 / 1000));
  ExpectIs({"LecunNormal"}, Kind::kTruncatedNormal, 0, std::sqrt(1.0 / 1000) / 0.87962566103423978);
  ExpectIs({"VarianceScaling", {{"scale", 3}}, {{"mode", "fan_out"}, {"distribution", "uniform"}}},
           Kind::kUniform, 0, std::sqrt(9.0 / 24));
  ExpectIs({"VarianceScaling", {}, {{"distribution", "untruncated_normal"}}}, Kind::kNormal, 0,
           std::sqrt(1e-3));
}

TEST(ResolveInitializer, ADynamicTableHasNoFanOfRows) {
  EXPECT_EQ(InitializerFault({"GlorotUniform"}, kDynamic),
            "initializer GlorotUniform: its mode fan_avg depends on the number of rows, and a dynamic table "
            "has no fixed "
            "number; use RandomUniform, RandomNormal or TruncatedNormal, or set vocabulary_size");
  EXPECT_THAT(InitializerFault({"VarianceScaling"}, kDynamic), HasSubstr("mode fan_in depends"));
  EXPECT_EQ(InitializerFault({"VarianceScaling", {}, {{"mode", "fan_out"}}}, kDynamic), "no fault");
}

TEST(ResolveInitializer, FaultsNameTheInitializerAndTheParameter) {
  EXPECT_THAT(InitializerFault({"Orthogonal"}),
              HasSubstr("unknown initializer 'Orthogonal'; supported: Zeros, Ones, "));
  EXPECT_EQ(InitializerFault({"RandomNormal", {{"sigma", 1}}}),
            "initializer RandomNormal: sigma 1 is not supported");
  EXPECT_EQ(InitializerFault({"RandomNormal", {{"stddev", -1}}}),
            "initializer RandomNormal: stddev -1 is negative");
  EXPECT_EQ(InitializerFault({"Constant", {{"value", NAN}}}),
            "initializer Constant: value nan is not a finite number");
  EXPECT_EQ(InitializerFault({"RandomUniform", {{"minval", 2}, {"maxval", 1}}}),
            "initializer RandomUniform: minval 2 is above maxval 1");
  EXPECT_EQ(InitializerFault({"VarianceScaling", {{"scale", 0}}}),
            "initializer VarianceScaling: scale 0 must be above 0");
  EXPECT_THAT(InitializerFault({"VarianceScaling", {}, {{"mode", "fan"}}}),
              HasSubstr("mode \"fan\" is not one of"));
  EXPECT_THAT(InitializerFault({"VarianceScaling", {}, {{"distribution", "cauchy"}}}),
              HasSubstr("\"cauchy\" is not one of"));
  EXPECT_EQ(InitializerFault({"Zeros", {}, {{"mode", "fan_in"}}}),
            "initializer Zeros: mode \"fan_in\" is not supported");
}

}  // namespace
}  // namespace cairn::embedding
