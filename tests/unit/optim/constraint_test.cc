// Constraints of variables, against numbers that Keras has computed.
#include "optim/constraint.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "optim/optimizer.h"
#include "optim/store/variable_store.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::optim {
namespace {

using ps::ToVector;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Constraint kNonNegative = {.non_negative = true};

// The variables of the program whose numbers the tests expect, with keras.constraints NonNeg(), MaxNorm(0.5),
// UnitNorm(axis=1), MinMaxNorm(0.3, 0.5, rate=0.5) and MaxNorm(0.4, axis=[0, 1, 2]).
std::vector<net::Slice> ConstrainedSlices() {
  std::vector<net::Slice> slices = {{"a", Shape({3, 2}), 0, 3, 0},
                                    {"b", Shape({3, 2}), 0, 3, 6},
                                    {"c", Shape({3, 2}), 0, 3, 12},
                                    {"d", Shape({3, 2}), 0, 3, 18},
                                    {"e", Shape({2, 1, 2, 2}), 0, 2, 24}};
  slices[0].constraint = kNonNegative;
  slices[1].constraint = Constraint{.axes = {0}, .max_norm = 0.5f};
  slices[2].constraint = Constraint{.axes = {1}, .min_norm = 1, .max_norm = 1};
  slices[3].constraint = Constraint{.axes = {0}, .min_norm = 0.3f, .max_norm = 0.5f, .rate = 0.5f};
  slices[4].constraint = Constraint{.axes = {0, 1, 2}, .max_norm = 0.4f};
  return slices;
}
constexpr int kElements = 32;

struct Case {
  std::string name;
  OptimizerConfig optimizer;
  bool last = false;  // the third update is the job's last
  std::vector<float> expected;
};

void PrintTo(const Case& tested, std::ostream* to) {
  *to << tested.name;
}

class ConstrainedUpdates : public testing::TestWithParam<Case> {};

// Keras 3.15 on JAX: values 0.5 sin(1 + i), then three times optimizer.apply(cos(i + 3 t)), t = 0, 1, 2, for element i
// of all variables. The last case ends with optimizer.finalize_variable_values().
TEST_P(ConstrainedUpdates, AreThoseOfKeras) {
  const auto optimizer = MakeOptimizer(GetParam().optimizer).value();
  VariableStore store(ConstrainedSlices(), optimizer.get());
  AlignedBuffer values(kElements);
  for (int i = 0; i < kElements; ++i) values.data()[i] = static_cast<float>(0.5 * std::sin(1.0 + i));
  const VariableStore::Run everything = {0, kElements};
  store.Write(values, {&everything, 1});
  for (int t = 0; t < 3; ++t) {
    std::vector<float> gradient;
    for (int i = 0; i < kElements; ++i) gradient.push_back(static_cast<float>(std::cos(i + 3.0 * t)));
    const ContributedGradient weighted = {gradient.data(), 1};
    VariableStore::Mean mean = {.gradients = {&weighted, 1}, .last = t == 2 && GetParam().last};
    for (const Norms norms : optimizer->norms()) mean.known = AddUp(store.Measure(norms, mean).value());
    ASSERT_EQ(store.ApplyMean(mean), absl::OkStatus());
  }
  const std::vector<float> result = ToVector(store.current());
  // Keras computes Adam's 1 - 0.999^t in float32, which changes its steps of 0.125 by up to 6e-6 of themselves. Norms
  // that become 1 enlarge the difference.
  const float tolerance = GetParam().name == "Adam" ? 1e-5f : 2e-6f;
  for (size_t i = 0; i < result.size(); ++i)
    EXPECT_NEAR(result[i], GetParam().expected[i], tolerance) << "element " << i;
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, ConstrainedUpdates,
    testing::Values(
        Case{"Sgd",
             {"SGD", {{"learning_rate", 0.25}, {"momentum", 0.5}}},
             false,
             {0.1144401f,   0.2749072f,  0.1826259f,  0.1696358f,  0.1563828f,  0.0002694258f, 0.02973983f,
              0.222257f,    0.2214529f,  0.01026433f, -0.2140537f, -0.2307999f, -0.06254623f,  0.9980419f,
              0.9805424f,   0.1963071f,  -0.5851724f, -0.8109087f, -0.1145962f, 0.1381125f,    0.2778742f,
              0.1455011f,   -0.1166768f, -0.2592121f, -0.1343295f, 0.01112583f, 0.1503694f,    0.1519828f,
              0.009177964f, -0.1376202f, -0.1580082f, -0.03744242f}},
        Case{"Adam",
             {"Adam", {{"learning_rate", 0.125}, {"weight_decay", 0.5}}},
             false,
             {0.2011598f,   0.2395012f,    0.2183876f,   0.04102972f, 0.04228032f,  0,          0.1124297f,
              0.2282163f,   0.3235455f,    -0.06041623f, -0.2505845f, -0.330821f,   0.1713636f, 0.9852077f,
              0.9999629f,   -0.008598499f, -0.8149851f,  -0.5794816f, -0.09175985f, 0.2316651f, 0.2136774f,
              0.1525021f,   -0.2031783f,   -0.2381607f,  -0.1631991f, 0.1258295f,   0.1688883f, 0.2314584f,
              -0.07596919f, -0.2066488f,   -0.2508202f,  0.05450808f}},
        Case{"Lamb",
             {"Lamb", {{"learning_rate", 0.25}}},
             false,
             {0.2840624f,   0.3525025f,  0.263797f,   0.06361949f, 0.06555866f, 0,          0.1086474f,
              0.2268277f,   0.3086174f,  -0.0552986f, -0.2485418f, -0.2962077f, 0.1169469f, 0.9931381f,
              0.9997938f,   0.02029805f, -0.7386758f, -0.6740606f, -0.1143576f, 0.2789104f, 0.3356444f,
              0.1930048f,   -0.2595236f, -0.3277153f, -0.1535183f, 0.1355392f,  0.1862075f, 0.2175656f,
              -0.08932371f, -0.2167219f, -0.2524184f, 0.06663069f}},
        Case{"OverwrittenByTheAverage",
             {"SGD",
              {{"learning_rate", 0.25},
               {"use_ema", 1},
               {"ema_momentum", 0.5},
               {"ema_overwrite_frequency", 2}}},
             false,
             {0.05444199f,  0.212803f,    0.175514f,   0.2277826f,  0.2097679f,   0,
              -0.01345601f, 0.1661827f,   0.2019174f,  0.04678312f, -0.1545986f,  -0.20512f,
              -0.05733829f, 0.9983547f,   0.9836485f,  0.1800979f,  -0.5819343f,  -0.8132356f,
              -0.1371057f,  0.08297813f,  0.2374369f,  0.1605949f,  -0.06051155f, -0.2166403f,
              -0.1377144f,  -0.04106987f, 0.09863834f, 0.143183f,   0.05561832f,  -0.07810038f,
              -0.1449291f,  -0.07818048f}},
        Case{"TheAverageAtTheEnd",
             {"SGD", {{"learning_rate", 0.25}, {"use_ema", 1}, {"ema_momentum", 0.5}}},
             true,
             {0.2363378f,   0.3478935f,  0.1395976f,   0.02115486f, -0.02124776f, -0.02592778f, 0.1168703f,
              0.290327f,    0.1963255f,  -0.07792753f, -0.2802708f, -0.2254684f,  0.0383574f,   0.7477999f,
              0.7858459f,   0.07343559f, -0.5006865f,  -0.5901192f, -0.04269113f, 0.2442939f,   0.3139502f,
              0.08784293f,  -0.2186076f, -0.317405f,   -0.1100159f, 0.1181876f,   0.2479335f,   0.1442376f,
              -0.09633752f, -0.2382356f, -0.1677524f,  0.05404443f}}),
    [](const auto& tested) { return tested.param.name; });

TEST(RaiseToZero, KeepsNaNs) {
  std::vector<float> values = {-1, std::numeric_limits<float>::quiet_NaN(), 2,
                               -std::numeric_limits<float>::infinity()};
  RaiseToZero(4, values.data());
  EXPECT_TRUE(std::isnan(values[1]));
  values[1] = 0;
  EXPECT_THAT(values, ElementsAre(0, 0, 2, 0));
}

TEST(ScaleToNorms, TakesTheNormsOfSomeRowsAsOfAll) {
  const Constraint unit = {.axes = {1}, .min_norm = 1, .max_norm = 1};
  std::vector<float> whole = {3, 4, 0, 2, 5, 12}, part(whole.begin() + 2, whole.end());
  ScaleToNorms(unit, {3, 2}, whole.data());
  ScaleToNorms(unit, {2, 2}, part.data());
  EXPECT_EQ(part, std::vector<float>(whole.begin() + 2, whole.end()));
  EXPECT_FLOAT_EQ(whole[0], 0.6f);
}

TEST(ScaleToNorms, LeavesZerosAndNoRows) {
  const Constraint unit = {.axes = {0}, .min_norm = 1, .max_norm = 1};
  std::vector<float> zeros = {0, 0};
  ScaleToNorms(unit, {2}, zeros.data());
  EXPECT_THAT(zeros, ElementsAre(0, 0));
  ScaleToNorms(unit, {0, 2}, nullptr);
  ScaleToNorms(unit, {2, 0}, nullptr);
}

TEST(ConstrainedSlices, AreLeftAloneWhereTheyAreUntouched) {
  const auto sgd = MakeOptimizer({"SGD", {{"learning_rate", 1}}}).value();
  for (const Constraint& constraint : {kNonNegative, Constraint{.axes = {0}, .min_norm = 1, .max_norm = 1}}) {
    std::vector<net::Slice> slices = {{"a", Shape({2}), 0, 2, 0}, {"b", Shape({2}), 0, 2, 2}};
    slices[0].constraint = slices[1].constraint = constraint;
    VariableStore store(slices, sgd.get());
    store.AssignGroups({-1, 0});
    ASSERT_TRUE(store.SetGroups({{.untouched = true}}).ok());
    AlignedBuffer values(4);
    for (int i = 0; i < 4; ++i) values.data()[i] = -4;
    const VariableStore::Run everything = {0, 4};
    store.Write(values, {&everything, 1});
    const std::vector<float> gradient(4);
    const ContributedGradient weighted = {gradient.data(), 1};
    ASSERT_EQ(store.ApplyMean({.gradients = {&weighted, 1}}), absl::OkStatus());
    const std::vector<float> result = ToVector(store.current());
    EXPECT_NE(result[0], -4);
    EXPECT_EQ(result[2], -4);
    EXPECT_EQ(result[3], -4);
  }
}

TEST(ConstraintCheck, NamesTheFault) {
  const auto fault_of = [](const Constraint& constraint) {
    return std::string(constraint.Check({2, 3}).message());
  };
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Constraint({.axes = {0, 1}, .max_norm = 2}).Check({2, 3}), absl::OkStatus());
  EXPECT_EQ(kNonNegative.Check({}), absl::OkStatus());
  EXPECT_THAT(fault_of({.max_norm = 2}), HasSubstr("there are no axes"));
  EXPECT_THAT(fault_of({.axes = {2}, .max_norm = 2}), HasSubstr("shape [2,3] has no axis 2"));
  EXPECT_THAT(fault_of({.axes = {-1}, .max_norm = 2}), HasSubstr("has no axis -1"));
  EXPECT_THAT(fault_of({.axes = {1, 1}, .max_norm = 2}), HasSubstr("not in ascending order"));
  EXPECT_THAT(fault_of({.axes = {0}, .min_norm = 3, .max_norm = 2}), HasSubstr("0 <= minimum <= maximum"));
  EXPECT_THAT(fault_of({.axes = {0}, .max_norm = kNaN}), HasSubstr("norms must be finite"));
  EXPECT_THAT(fault_of({.axes = {0}, .max_norm = 2, .rate = 1.5f}), HasSubstr("rate is not in [0, 1]"));
}

}  // namespace
}  // namespace cairn::optim
