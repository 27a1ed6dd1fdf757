#include "optim/optimizer.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string ErrorOf(const OptimizerConfig& config) {
  const auto optimizer = MakeOptimizer(config);
  if (optimizer.ok()) return "accepted";
  EXPECT_EQ(optimizer.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(optimizer.status().message());
}

TEST(MakeOptimizer, NamesAreKerasClassNamesInAnyCase) {
  for (const char* name : {"adam", "Adam", "ADAM"}) {
    EXPECT_EQ(MakeOptimizer({name, {}}).value()->name(), "Adam");
  }
  EXPECT_EQ(MakeOptimizer({"sgd", {}}).value()->name(), "SGD");
}

TEST(MakeOptimizer, AnUnknownNameListsTheSupportedOnes) {
  EXPECT_EQ(
      ErrorOf({"Muon", {}}),
      "unknown optimizer 'Muon'; supported: SGD, Adam, AdamW, Adagrad, Adadelta, RMSprop, Adamax, Nadam, "
      "Ftrl, Lion, Lamb, torch.SGD, torch.Adam, torch.AdamW, torch.RMSprop, torch.Adagrad, torch.Adadelta, "
      "torch.Adamax, torch.NAdam, torch.RAdam");
}

TEST(MakeOptimizer, AnUnknownHyperparameterIsNamed) {
  EXPECT_EQ(ErrorOf({"SGD", {{"beta_1", 0.9}}}),
            "optimizer SGD: unknown hyperparameter 'beta_1'; known: learning_rate, momentum, nesterov, "
            "clipvalue, clipnorm, global_clipnorm, weight_decay, use_ema, ema_momentum, "
            "ema_overwrite_frequency");
}

TEST(MakeOptimizer, AHyperparameterOutOfRangeIsNamedWithItsRange) {
  struct Row {
    OptimizerConfig config;
    std::string what;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const Row rows[] = {
      {{"SGD", {{"learning_rate", -1}}}, "'learning_rate' is -1, must be a finite number of at least 0"},
      {{"SGD", {{"learning_rate", infinity}}}, "'learning_rate' is inf"},
      {{"SGD", {{"learning_rate", 1e300}}}, "'learning_rate' is 1e+300"},  // as a float infinite
      {{"SGD", {{"momentum", 1.5}}}, "'momentum' is 1.5, must be in [0, 1]"},
      {{"SGD", {{"momentum", 0.9}, {"nesterov", 0.5}}}, "'nesterov' is 0.5, must be 0 or 1"},
      {{"Adam", {{"beta_1", 1}}}, "'beta_1' is 1, must be in [0, 1)"},
      {{"Adam", {{"beta_2", -0.1}}}, "'beta_2' is -0.1, must be in [0, 1)"},
      {{"Adam", {{"epsilon", 0}}}, "'epsilon' is 0, must be a finite number above 0"},
      {{"Adam", {{"epsilon", 1e-60}}}, "'epsilon' is 1e-60"},  // as a float 0
      {{"Adam", {{"epsilon", std::numeric_limits<double>::quiet_NaN()}}}, "'epsilon' is nan"},
      {{"Adagrad", {{"initial_accumulator_value", -1}}}, "'initial_accumulator_value' is -1"},
      {{"Adadelta", {{"rho", 1.5}}}, "'rho' is 1.5, must be in [0, 1]"},
      {{"RMSprop", {{"centered", 2}}}, "'centered' is 2, must be 0 or 1"},
      {{"Adamax", {{"beta_2", 1}}}, "'beta_2' is 1, must be in [0, 1)"},
      {{"Nadam", {{"epsilon", 0}}}, "'epsilon' is 0"},
      {{"Ftrl", {{"learning_rate_power", 0.1}}},
       "'learning_rate_power' is 0.1, must be a finite number of at most 0"},
      {{"Ftrl", {{"l1_regularization_strength", -0.1}}}, "'l1_regularization_strength' is -0.1"},
      {{"Lion", {{"beta_1", 0}}}, "'beta_1' is 0, must be in (0, 1]"},
      {{"Lamb", {{"beta_1", 1}}}, "'beta_1' is 1"},
      {{"SGD", {{"clipvalue", -1}}}, "'clipvalue' is -1"},
      {{"SGD", {{"ema_momentum", 1.1}}}, "'ema_momentum' is 1.1, must be in [0, 1]"},
      {{"SGD", {{"ema_overwrite_frequency", 1.5}}}, "is 1.5, must be a whole number of at least 0"},
  };
  for (const Row& row : rows) EXPECT_THAT(ErrorOf(row.config), HasSubstr(row.what));
}

// The output of Keras 3's model.to_json() for a compiled model, without its nulls.
TEST(MakeOptimizer, AKerasConfigWithItsSwitchesOffIsAccepted) {
  EXPECT_EQ(ErrorOf({"Adam",
                     {{"learning_rate", 0.001},
                      {"beta_1", 0.9},
                      {"beta_2", 0.999},
                      {"epsilon", 1e-7},
                      {"amsgrad", 0},
                      {"weight_decay", 0},
                      {"use_ema", 0},
                      {"ema_momentum", 0.99},
                      {"ema_overwrite_frequency", 100},
                      {"jit_compile", 1},
                      {"is_legacy_optimizer", 0}}}),
            "accepted");
}

TEST(MakeOptimizer, AFeatureOfKerasThatCairnLacksIsRefusedByName) {
  for (const char* name : {"loss_scale_factor", "gradient_accumulation_steps", "decay"}) {
    EXPECT_THAT(ErrorOf({"Adam", {{name, 4}}}), AllOf(HasSubstr(name), HasSubstr("Cairn lacks")));
  }
}

TEST(MakeOptimizer, OnlyOneOfTheThreeClipsMayBeSet) {
  EXPECT_THAT(ErrorOf({"SGD", {{"clipnorm", 0.1}, {"clipvalue", 0.1}}}),
              HasSubstr("only one of clipvalue, clipnorm and global_clipnorm may be set"));
  EXPECT_THAT(ErrorOf({"SGD", {{"clipnorm", 0.1}, {"global_clipnorm", 0.1}}}), HasSubstr("only one"));
  EXPECT_EQ(ErrorOf({"SGD", {{"clipnorm", 0.1}, {"clipvalue", 0}}}), "accepted") << "0 is off";
}

TEST(MakeOptimizer, AScheduleReplacesTheRate) {
  OptimizerConfig config = {"SGD", {}};
  config.schedule = {"ExponentialDecay",
                     {{"initial_learning_rate", 1}, {"decay_steps", 2}, {"decay_rate", 0.25}}};
  const auto sgd = MakeOptimizer(config).value();
  EXPECT_EQ(sgd->learning_rate(0), 1);
  EXPECT_EQ(sgd->learning_rate(1), 0.5f);
  EXPECT_EQ(MakeOptimizer({"SGD", {}}).value()->learning_rate(1000), 0.01f) << "Keras' default, constant";
}

TEST(MakeOptimizer, ARateWithAScheduleAndInvalidSchedulesAreRefused) {
  OptimizerConfig config = {"SGD", {{"learning_rate", 1}}};
  config.schedule = {"CosineDecay", {{"initial_learning_rate", 1}, {"decay_steps", 2}}};
  EXPECT_THAT(ErrorOf(config), HasSubstr("both a learning_rate and a schedule are set"));
  config = {"SGD", {}};
  config.schedule = {"CosineDecay", {{"initial_learning_rate", 1}}};
  EXPECT_EQ(ErrorOf(config), "optimizer SGD: schedule CosineDecay: hyperparameter 'decay_steps' is missing");
}

TEST(Optimizer, ReportsWhichNormsItNeeds) {
  const auto norms_of = [](const OptimizerConfig& config) {
    const auto optimizer = MakeOptimizer(config).value();
    return std::vector<Norms>(optimizer->norms().begin(), optimizer->norms().end());
  };
  EXPECT_THAT(norms_of({"Adam", {{"clipvalue", 1}}}), IsEmpty());
  EXPECT_THAT(norms_of({"Adam", {{"clipnorm", 1}}}), ElementsAre(Norms::kGradient));
  EXPECT_THAT(norms_of({"Adam", {{"global_clipnorm", 1}}}), ElementsAre(Norms::kGradient));
  EXPECT_THAT(norms_of({"Lamb", {}}), ElementsAre(Norms::kLayer));
  EXPECT_THAT(norms_of({"Lamb", {{"global_clipnorm", 1}}}), ElementsAre(Norms::kGradient, Norms::kLayer));
}

// Each optimizer must give the same bits however it is run.
class EveryOptimizer : public testing::TestWithParam<Rule> {};

// Magnitudes from denormal to 1000, both signs.
std::vector<float> RandomFloats(int64_t count, const char* stream) {
  Random random(/*seed=*/5, stream);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::pow(10.0f, random.NextUniform(-41, 3));
    values.push_back(random.NextBelow(2) == 0 ? magnitude : -magnitude);
  }
  return values;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Seven steps: RAdam divides by its second moment from the sixth on.
TEST_P(EveryOptimizer, GivesTheSameBitsOnEveryInstructionSet) {
  for (int64_t count : {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65, 1000}) {
    const std::vector<float> values = RandomFloats(count, "values");
    TrainedVariable expected(GetParam().config, values, Isa::kBaseline);
    for (int step = 0; step < 7; ++step) expected.Step(RandomFloats(count, step == 1 ? "g1" : "g2"));
    for (Isa isa : SupportedIsas()) {
      TrainedVariable actual(GetParam().config, values, isa);
      for (int step = 0; step < 7; ++step) actual.Step(RandomFloats(count, step == 1 ? "g1" : "g2"));
      EXPECT_TRUE(SameBits(actual.values(), expected.values())) << count << " elements, " << IsaName(isa);
      for (size_t s = 0; s < expected.slots().size(); ++s) {
        EXPECT_TRUE(SameBits(actual.slots()[s], expected.slots()[s]))
            << count << " elements, " << IsaName(isa);
      }
    }
  }
}

TEST_P(EveryOptimizer, InPlaceGivesTheSameBitsAsOutOfPlace) {
  const int64_t count = 1001;
  const std::vector<float> gradient = RandomFloats(count, "gradient");
  const WeightedGradient mean = {gradient.data(), 1};
  TrainedVariable old(GetParam().config, RandomFloats(count, "values"));
  std::vector<float> expected(count);
  ApplyMean(old.optimizer(), {1, 0.5f}, {&mean, 1},
            {count, old.values().data(), old.slots_in_place(), expected.data()});
  TrainedVariable in_place(GetParam().config, RandomFloats(count, "values"));
  ApplyMean(in_place.optimizer(), {1, 0.5f}, {&mean, 1},
            {count, in_place.values().data(), in_place.slots_in_place(), in_place.values().data()});
  EXPECT_TRUE(SameBits(in_place.values(), expected));
}

TEST_P(EveryOptimizer, DoesNotChangeTheOldValues) {
  const std::vector<float> old_values = RandomFloats(100, "values");
  const std::vector<float> before = old_values;
  TrainedVariable variable(GetParam().config, old_values);
  std::vector<float> next(100);
  const std::vector<float> gradient = RandomFloats(100, "gradient");
  const WeightedGradient mean = {gradient.data(), 1};
  ApplyMean(variable.optimizer(), {1, 0.5f}, {&mean, 1},
            {100, old_values.data(), variable.slots_in_place(), next.data()});
  EXPECT_TRUE(SameBits(old_values, before));
  EXPECT_FALSE(SameBits(next, before));
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryOptimizer, EveryRule());

TEST(Isa, TheBaselineIsAlwaysSupportedAndTheWidestIsLast) {
  EXPECT_EQ(SupportedIsas().front(), Isa::kBaseline);
  EXPECT_EQ(SupportedIsas().back(), WidestIsa());
}

}  // namespace
}  // namespace cairn::optim
