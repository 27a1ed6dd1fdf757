#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::optim {
namespace {

using testing::HasSubstr;

using Numbers = std::map<std::string, double>;

double At(const ScheduleConfig& config, int64_t iterations) {
  return MakeSchedule(config).value()(iterations);
}

Numbers With(Numbers numbers, const Numbers& more) {
  numbers.insert(more.begin(), more.end());
  return numbers;
}

// The values and formulas below are those of keras/src/optimizers/schedules/learning_rate_schedule_test.py.
TEST(ExponentialDecay, IsContinuousOrAStaircase) {
  EXPECT_NEAR(
      At({"ExponentialDecay", {{"initial_learning_rate", 0.05}, {"decay_steps", 10}, {"decay_rate", 0.96}}},
         5),
      0.05 * std::pow(0.96, 0.5), 1e-15);
  const ScheduleConfig staircase = {
      "ExponentialDecay",
      {{"initial_learning_rate", 0.1}, {"decay_steps", 3}, {"decay_rate", 0.96}, {"staircase", 1}}};
  EXPECT_EQ(At(staircase, 1), 0.1);
  EXPECT_EQ(At(staircase, 2), 0.1);
  EXPECT_NEAR(At(staircase, 100), 0.1 * std::pow(0.96, 33), 1e-15);
}

TEST(InverseTimeDecay, IsContinuousOrAStaircase) {
  const Numbers numbers = {{"initial_learning_rate", 0.1}, {"decay_steps", 10}, {"decay_rate", 0.96}};
  for (int i = 0; i <= 10; ++i) {
    EXPECT_NEAR(At({"InverseTimeDecay", numbers}, i), 0.1 / (1 + i / 10.0 * 0.96), 1e-15);
    EXPECT_NEAR(At({"InverseTimeDecay", With(numbers, {{"staircase", 1}})}, i), 0.1 / (1 + 0.96 * (i / 10)),
                1e-15);  // NOLINT(bugprone-integer-division): the staircase
  }
}

TEST(PolynomialDecay, EndsAtTheEndRateOrCycles) {
  const Numbers line = {{"initial_learning_rate", 0.05}, {"decay_steps", 10}, {"end_learning_rate", 0.001}};
  EXPECT_NEAR(At({"PolynomialDecay", line}, 5), (0.05 + 0.001) * 0.5, 1e-15);
  EXPECT_EQ(At({"PolynomialDecay", line}, 10), 0.001);
  EXPECT_EQ(At({"PolynomialDecay", line}, 15), 0.001);
  EXPECT_NEAR(At({"PolynomialDecay", With(line, {{"cycle", 1}})}, 15), 0.049 * 0.25 + 0.001, 1e-15);
  const Numbers root = With(line, {{"power", 0.5}});
  EXPECT_NEAR(At({"PolynomialDecay", root}, 5), 0.049 * std::sqrt(0.5) + 0.001, 1e-15);
  EXPECT_NEAR(At({"PolynomialDecay", With(root, {{"cycle", 1}})}, 15), 0.049 * std::sqrt(0.25) + 0.001,
              1e-15);
  EXPECT_EQ(At({"PolynomialDecay", {{"initial_learning_rate", 0.001}, {"decay_steps", 10}, {"cycle", 1}}}, 0),
            0.001);
}

TEST(PolynomialDecay, HasKerasDefaultEndRate) {
  EXPECT_EQ(At({"PolynomialDecay", {{"initial_learning_rate", 1}, {"decay_steps", 10}}}, 10), 0.0001);
}

double HalfCosine(double fraction, double alpha) {
  return (1 - alpha) * 0.5 * (1 + std::cos(std::numbers::pi * fraction)) + alpha;
}

TEST(CosineDecay, FallsToAlpha) {
  for (double alpha : {0.0, 0.1}) {
    const ScheduleConfig config = {"CosineDecay",
                                   {{"initial_learning_rate", 1}, {"decay_steps", 1000}, {"alpha", alpha}}};
    for (int step = 0; step < 1500; step += 250) {
      EXPECT_NEAR(At(config, step), HalfCosine(std::min(step, 1000) / 1000.0, alpha), 1e-15);
    }
  }
}

TEST(CosineDecay, WarmsUpToItsTargetAndFallsFromThere) {
  const ScheduleConfig config = {
      "CosineDecay",
      {{"initial_learning_rate", 2}, {"decay_steps", 1000}, {"warmup_target", 10}, {"warmup_steps", 2000}}};
  for (int step = 0; step < 3500; step += 250) {
    const double expected =
        step < 2000 ? 2 + 8 * step / 2000.0 : 10 * HalfCosine(std::min(step - 2000, 1000) / 1000.0, 0);
    EXPECT_NEAR(At(config, step), expected, 1e-14) << "step " << step;
  }
}

TEST(CosineDecay, WithoutATargetThereIsNoWarmup) {
  EXPECT_EQ(
      At({"CosineDecay", {{"initial_learning_rate", 2}, {"decay_steps", 1000}, {"warmup_steps", 2000}}}, 0),
      2);
}

TEST(CosineDecayRestarts, EachTurnIsLongerAndLower) {
  struct Case {
    double t_mul, m_mul, alpha;
  };
  for (const Case& c :
       {Case{2, 1, 0}, Case{2, 1, 0.1}, Case{2, 0.9, 0}, Case{1, 1, 0}, Case{1.5, 0.5, 0.2}}) {
    const ScheduleConfig config = {"CosineDecayRestarts",
                                   {{"initial_learning_rate", 1},
                                    {"first_decay_steps", 1000},
                                    {"t_mul", c.t_mul},
                                    {"m_mul", c.m_mul},
                                    {"alpha", c.alpha}}};
    for (int step = 0; step < 10000; step += 250) {
      double left = step, length = 1000, peak = 1;
      while (left >= length) {
        left -= length;
        length *= c.t_mul;
        peak *= c.m_mul;
      }
      EXPECT_NEAR(At(config, step), (1 - c.alpha) * peak * HalfCosine(left / length, 0) + c.alpha, 1e-12)
          << "t_mul " << c.t_mul << ", step " << step;
    }
  }
}

TEST(CosineDecayRestarts, RestartsAtTheFirstUpdateOfATurn) {
  const ScheduleConfig config = {"CosineDecayRestarts",
                                 {{"initial_learning_rate", 0.5}, {"first_decay_steps", 10}}};
  for (int64_t step : {0, 10, 30, 70, 150, 310}) EXPECT_EQ(At(config, step), 0.5) << "step " << step;
}

TEST(PiecewiseConstantDecay, ABoundaryBelongsToThePieceBeforeIt) {
  const ScheduleConfig config = {"PiecewiseConstantDecay", {}, {100, 110, 120}, {1, 0.1, 0.01, 0.001}};
  EXPECT_EQ(At(config, 0), 1);
  EXPECT_EQ(At(config, 100), 1);
  EXPECT_EQ(At(config, 101), 0.1);
  EXPECT_EQ(At(config, 110), 0.1);
  EXPECT_EQ(At(config, 120), 0.01);
  EXPECT_EQ(At(config, 999), 0.001);
  EXPECT_EQ(At({"PiecewiseConstantDecay", {}, {}, {0.25}}, 7), 0.25);
}

std::string FaultOf(const ScheduleConfig& config) {
  const auto schedule = MakeSchedule(config);
  EXPECT_EQ(schedule.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(schedule.status().message());
}

TEST(MakeSchedule, AnUnknownNameListsTheSupportedOnes) {
  EXPECT_EQ(FaultOf({"StepDecay", {}}),
            "unknown schedule 'StepDecay'; supported: ExponentialDecay, InverseTimeDecay, PolynomialDecay, "
            "CosineDecay, CosineDecayRestarts, PiecewiseConstantDecay");
}

TEST(MakeSchedule, NamesWhatIsMissingUnknownOrOutOfRange) {
  const Numbers good = {{"initial_learning_rate", 1}, {"decay_steps", 10}};
  EXPECT_EQ(FaultOf({"CosineDecay", {{"initial_learning_rate", 1}}}),
            "schedule CosineDecay: hyperparameter 'decay_steps' is missing");
  EXPECT_THAT(FaultOf({"CosineDecay", {{"initial_learning_rate", 1}, {"decay_steps", 0}}}),
              HasSubstr("'decay_steps' is 0, must be a finite number above 0"));
  EXPECT_THAT(FaultOf({"CosineDecay", With(good, {{"decay_rate", 1}})}),
              HasSubstr("unknown hyperparameter 'decay_rate'"));
  EXPECT_THAT(FaultOf({"PolynomialDecay", With(good, {{"end_learning_rate", -1}})}),
              HasSubstr("'end_learning_rate' is -1"));
  EXPECT_THAT(FaultOf({"CosineDecayRestarts",
                       {{"initial_learning_rate", 1}, {"first_decay_steps", 10}, {"t_mul", 0.5}}}),
              HasSubstr("'t_mul' is 0.5, must be a finite number of at least 1"));
}

// With shorter turns, counting the turns up to an update would not end, or would take years.
TEST(MakeSchedule, TurnsShorterThanOneUpdateAreRefused) {
  const Numbers good = {{"initial_learning_rate", 1}, {"first_decay_steps", 1}};
  EXPECT_THAT(FaultOf({"CosineDecayRestarts", With(good, {{"t_mul", 0.99999999}})}),  // 1 as a float
              HasSubstr("'t_mul' is 1, must be a finite number of at least 1"));
  EXPECT_THAT(
      FaultOf({"CosineDecayRestarts", With({{"initial_learning_rate", 1}}, {{"first_decay_steps", 1e-10}})}),
      HasSubstr("'first_decay_steps' is 1e-10, must be a finite number of at least 1"));
  EXPECT_TRUE(MakeSchedule({"CosineDecayRestarts", good}).ok());
}

TEST(MakeSchedule, ListsMustMatchInLength) {
  EXPECT_THAT(FaultOf({"PiecewiseConstantDecay", {}, {1, 2}, {1, 2}}),
              HasSubstr("2 boundaries and 2 values: there must be one more value"));
  EXPECT_THAT(FaultOf({"PiecewiseConstantDecay", {}}), HasSubstr("0 boundaries and 0 values"));
  EXPECT_THAT(FaultOf({"PiecewiseConstantDecay", {}, {2, 2}, {1, 2, 3}}), HasSubstr("2, 2 must increase"));
  EXPECT_THAT(FaultOf({"PiecewiseConstantDecay", {}, {2}, {1, -1}}), HasSubstr("values 1, -1"));
  EXPECT_THAT(FaultOf({"PiecewiseConstantDecay", {}, {2}, {1, std::numeric_limits<double>::infinity()}}),
              HasSubstr("must all be finite"));
  EXPECT_THAT(FaultOf({"CosineDecay", {{"initial_learning_rate", 1}, {"decay_steps", 10}}, {1}, {}}),
              HasSubstr("only PiecewiseConstantDecay takes boundaries and values"));
}

}  // namespace
}  // namespace cairn::optim
