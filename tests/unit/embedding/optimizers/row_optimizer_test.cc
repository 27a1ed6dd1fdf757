#include "embedding/optimizers/row_optimizer.h"

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "common/core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/embedding/optimizers/trained_rows.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::embedding {
namespace {

using optim::OptimizerConfig;
using ::testing::HasSubstr;

// The same rule for one row in double. `mean_square` is that of the row's gradient.
struct DoubleRow {
  std::vector<double> w;
  std::vector<std::vector<double>> slots;  // [slot] [column]
};
using Reference = std::function<void(DoubleRow& row, size_t j, double g, double mean_square, int t)>;

struct RuleCase {
  const char* name;
  OptimizerConfig config;
  std::vector<double> initial_slots;
  Reference move;
};
void PrintTo(const RuleCase& rule, std::ostream* out) {
  *out << rule.name;
}

constexpr double kRate = 0.1;

void AdamReference(DoubleRow& row, size_t j, double g, double, int t) {
  double &m = row.slots[0][j], &v = row.slots[1][j];
  m += 0.1 * (g - m);
  v += 0.001 * (g * g - v);
  const double alpha = kRate * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t));
  row.w[j] -= alpha * m / (std::sqrt(v) + 1e-7);
}

void FtrlReference(DoubleRow& row, size_t j, double g, double, int) {
  double &n = row.slots[0][j], &z = row.slots[1][j];
  const double sum = n + g * g, sigma = (std::sqrt(sum) - std::sqrt(n)) / kRate;
  z += g - sigma * row.w[j];
  n = sum;
  row.w[j] =
      std::abs(z) <= 0.01 ? 0 : ((z > 0 ? 0.01 : -0.01) - z) / ((0.2 + std::sqrt(n)) / kRate + 2 * 0.3);
}

const std::vector<RuleCase>& Rules() {
  static const auto* const rules = new std::vector<RuleCase>{
      {"Sgd",
       {"SGD", {{"learning_rate", kRate}}},
       {},
       [](DoubleRow& row, size_t j, double g, double, int) { row.w[j] -= kRate * g; }},
      {"Momentum",
       {"SGD", {{"learning_rate", kRate}, {"momentum", 0.9}}},
       {0},
       [](DoubleRow& row, size_t j, double g, double, int) {
         row.slots[0][j] = 0.9 * row.slots[0][j] - kRate * g;
         row.w[j] += row.slots[0][j];
       }},
      {"Nesterov",
       {"SGD", {{"learning_rate", kRate}, {"momentum", 0.9}, {"nesterov", 1}}},
       {0},
       [](DoubleRow& row, size_t j, double g, double, int) {
         row.slots[0][j] = 0.9 * row.slots[0][j] - kRate * g;
         row.w[j] += 0.9 * row.slots[0][j] - kRate * g;
       }},
      {"Adagrad",
       {"Adagrad", {{"learning_rate", kRate}}},
       {0.1},
       [](DoubleRow& row, size_t j, double g, double, int) {
         row.slots[0][j] += g * g;
         row.w[j] -= kRate * g / std::sqrt(row.slots[0][j] + 1e-7);
       }},
      {"RowWiseAdagrad",
       {"RowWiseAdagrad", {{"learning_rate", kRate}}},
       {0},
       [](DoubleRow& row, size_t j, double g, double mean_square, int) {
         row.slots[0][j] += mean_square;
         row.w[j] -= kRate * g / (std::sqrt(row.slots[0][j]) + 1e-8);
       }},
      {"Adam", {"Adam", {{"learning_rate", kRate}}}, {0, 0}, AdamReference},
      {"AdamThatCatchesUp", {"Adam", {{"learning_rate", kRate}, {"catch_up", 1}}}, {0, 0}, AdamReference},
      {"Ftrl",
       {"Ftrl",
        {{"learning_rate", kRate},
         {"beta", 0.2},
         {"l1_regularization_strength", 0.01},
         {"l2_regularization_strength", 0.3}}},
       {0.1, 0},
       FtrlReference},
      {"Rmsprop",
       {"RMSprop", {{"learning_rate", kRate}}},
       {0},
       [](DoubleRow& row, size_t j, double g, double, int) {
         row.slots[0][j] = 0.9 * row.slots[0][j] + 0.1 * g * g;
         row.w[j] -= kRate * g / std::sqrt(row.slots[0][j] + 1e-7);
       }},
      {"RmspropWithAll",
       {"RMSprop", {{"learning_rate", kRate}, {"momentum", 0.5}, {"centered", 1}}},
       {0, 0, 0},
       [](DoubleRow& row, size_t j, double g, double, int) {
         double &v = row.slots[0][j], &m = row.slots[1][j], &a = row.slots[2][j];
         v = 0.9 * v + 0.1 * g * g;
         a = 0.9 * a + 0.1 * g;
         m = 0.5 * m + kRate * g / std::sqrt(v - a * a + 1e-7);
         row.w[j] -= m;
       }},
  };
  return *rules;
}

std::vector<float> RandomRow(Random& random, size_t dim) {
  std::vector<float> row(dim);
  for (float& x : row) x = random.NextUniform(-1, 1);
  return row;
}

class EveryRowRule : public testing::TestWithParam<RuleCase> {};

TEST_P(EveryRowRule, EqualsADoubleReferenceInEveryWidth) {
  const RuleCase& rule = GetParam();
  for (size_t dim = 1; dim <= 70; ++dim) {
    Random random(dim, "rows");
    const std::vector<float> start = RandomRow(random, dim);
    TrainedRows table(rule.config, {start});
    DoubleRow reference{{start.begin(), start.end()}, {}};
    for (const double initial : rule.initial_slots)
      reference.slots.push_back(std::vector<double>(dim, initial));
    for (int t = 1; t <= 5; ++t) {
      const std::vector<float> g = RandomRow(random, dim);
      table.Step({{0, g}});
      double square = 0;
      for (const float x : g) square += static_cast<double>(x) * x;
      for (size_t j = 0; j < dim; ++j) rule.move(reference, j, g[j], square / static_cast<double>(dim), t);
    }
    ExpectNear(table.values(0), reference.w, 3e-6);
    ASSERT_FALSE(HasFailure()) << "width " << dim;
  }
}

TEST_P(EveryRowRule, EveryInstructionSetGivesTheSameBits) {
  for (const size_t dim : {1u, 7u, 16u, 37u, 64u, 1024u}) {
    Random random(dim, "rows");
    const std::vector<float> start = RandomRow(random, dim);
    std::vector<std::vector<float>> gradients;
    for (int t = 0; t < 4; ++t) gradients.push_back(RandomRow(random, dim));
    TrainedRows baseline(GetParam().config, {start}, optim::Isa::kBaseline);
    for (const auto& g : gradients) baseline.Step({{0, g}});
    for (const optim::Isa isa : optim::SupportedIsas()) {
      TrainedRows other(GetParam().config, {start}, isa);
      for (const auto& g : gradients) other.Step({{0, g}});
      ASSERT_EQ(absl::MakeSpan(other.row(0)), absl::MakeSpan(baseline.row(0)))
          << optim::IsaName(isa) << " " << dim;
    }
  }
}

// Two rows in one call, alone, or in another order.
TEST_P(EveryRowRule, ARowDoesNotDependOnTheOthersOfTheCall) {
  Random random(1, "rows");
  const std::vector<std::vector<float>> start = {RandomRow(random, 19), RandomRow(random, 19)};
  const std::vector<float> g0 = RandomRow(random, 19), g1 = RandomRow(random, 19);
  TrainedRows together(GetParam().config, start), reversed(GetParam().config, start),
      alone(GetParam().config, start);
  for (int t = 0; t < 3; ++t) {
    together.Step({{0, g0}, {1, g1}});
    reversed.Step({{1, g1}, {0, g0}});
    alone.Step({{1, g1}});
  }
  EXPECT_EQ(together.row(0), reversed.row(0));
  EXPECT_EQ(together.row(1), reversed.row(1));
  EXPECT_EQ(together.row(1), alone.row(1));
}

TEST_P(EveryRowRule, ARowThatIsNotInACallNeverChanges) {
  Random random(1, "rows");
  const std::vector<float> start = RandomRow(random, 8);
  TrainedRows table(GetParam().config, {start, start});
  const std::vector<float> untouched = table.row(1);
  for (int t = 0; t < 50; ++t) table.Step({{0, RandomRow(random, 8)}});
  table.Step({});
  EXPECT_EQ(table.row(1), untouched);
  EXPECT_EQ(table.ReadValues(1), start);
}

// A row of every batch moves as a variable does.
TEST_P(EveryRowRule, ARowOfEveryBatchHasTheBitsOfAVariable) {
  OptimizerConfig config = GetParam().config;
  if (config.name == "RowWiseAdagrad") return;  // has no rule for variables
  Random random(1, "rows");
  const std::vector<float> start = RandomRow(random, 33);
  TrainedRows table(config, {start});
  config.hyperparameters.erase("catch_up");
  optim::TrainedVariable variable(config, start);
  for (int t = 0; t < 20; ++t) {
    const std::vector<float> g = RandomRow(random, 33);
    table.Step({{0, g}});
    variable.Step(g);
  }
  EXPECT_EQ(table.values(0), variable.values());
}

INSTANTIATE_TEST_SUITE_P(RowOptimizer, EveryRowRule, testing::ValuesIn(Rules()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(RowOptimizer, TheCorrectionOfLazyAdamIsThatOfTheJobsStep) {
  TrainedRows late({"Adam", {{"learning_rate", 0.1}}}, {{0}});
  for (int step = 0; step < 99; ++step) late.Step({});
  late.Step({{0, {1}}});
  const double alpha = 0.1 * std::sqrt(1 - std::pow(0.999, 100)) / (1 - std::pow(0.9, 100));
  ExpectNear(late.values(0), {-alpha * 0.1 / std::sqrt(0.001)});
}

TEST(RowOptimizer, FtrlGivesExactZerosWithinL1) {
  TrainedRows table({"Ftrl", {{"learning_rate", 0.1}, {"l1_regularization_strength", 1}}}, {{0, 0}});
  for (int step = 0; step < 5; ++step) table.Step({{0, {0.1f, -0.1f}}});
  EXPECT_EQ(table.values(0), (std::vector<float>{0, 0}));
  for (int step = 0; step < 10; ++step) table.Step({{0, {0.1f, -0.1f}}});
  EXPECT_LT(table.values(0)[0], 0);
  EXPECT_GT(table.values(0)[1], 0);
}

TEST(RowOptimizer, ALearningRateOf0LeavesFtrlsRowsAlone) {
  TrainedRows table({"Ftrl", {{"learning_rate", 0}}}, {{1, 2}});
  const std::vector<float> before = table.row(0);
  table.Step({{0, {1, 1}}});
  EXPECT_EQ(table.row(0), before);
}

TEST(RowOptimizer, ClipvalueLimitsEveryElement) {
  TrainedRows table({"SGD", {{"learning_rate", 1}, {"clipvalue", 0.5}}}, {{0, 0, 0}, {0, 0, 0}});
  table.Step({{0, {2, -3, 0.25f}}, {1, {0.5f, -0.5f, 0}}});
  EXPECT_EQ(table.values(0), (std::vector<float>{-0.5f, 0.5f, -0.25f}));
  EXPECT_EQ(table.values(1), (std::vector<float>{-0.5f, 0.5f, 0}));
}

// More rows than a block of clipped gradients.
TEST(RowOptimizer, RowClipnormLimitsTheNormOfEachRowAlone) {
  constexpr size_t kRows = 10'000;
  TrainedRows table({"SGD", {{"learning_rate", 1}, {"row_clipnorm", 5}}},
                    std::vector<std::vector<float>>(kRows, {0, 0}));
  std::vector<RowGradient> gradients;
  for (size_t row = 0; row < kRows; ++row) {
    gradients.push_back({row, row % 2 == 0 ? std::vector<float>{6, 8} : std::vector<float>{3, 4}});
  }
  table.Step(gradients);
  for (size_t row = 0; row < kRows; ++row) ASSERT_EQ(table.values(row), (std::vector<float>{-3, -4})) << row;
}

TEST(RowOptimizer, TheLearningRateMayHaveASchedule) {
  OptimizerConfig config{"SGD", {}};
  config.schedule = {"PiecewiseConstantDecay", {}, {1}, {1, 0.5}};
  TrainedRows table(config, {{0}});
  for (int step = 0; step < 3; ++step) table.Step({{0, {1}}});
  EXPECT_EQ(table.values(0), std::vector<float>{-2.5f});
}

std::string OptimizerFault(const OptimizerConfig& config) {
  const auto optimizer = MakeRowOptimizer(config, 4);
  return optimizer.ok() ? "no fault" : std::string(optimizer.status().message());
}

TEST(MakeRowOptimizer, NamesAreThoseOfKerasInAnyCase) {
  for (const char* name : {"sgd", "ADAM", "adagrad", "rowwiseadagrad", "rmsprop", "ftrl"}) {
    EXPECT_EQ(OptimizerFault({name, {}}), "no fault");
  }
}

TEST(MakeRowOptimizer, FaultsNameTheOptimizerAndTheHyperparameter) {
  EXPECT_EQ(
      OptimizerFault({"Lion", {}}),
      "unknown optimizer 'Lion' of a table; supported: SGD, Adam, Adagrad, RowWiseAdagrad, RMSprop, Ftrl");
  EXPECT_THAT(OptimizerFault({"Adam", {{"beta1", 0.9}}}),
              HasSubstr("optimizer Adam: unknown hyperparameter 'beta1'"));
  EXPECT_THAT(OptimizerFault({"Adam", {{"beta_1", 1}}}), HasSubstr("'beta_1' is 1, must be in [0, 1)"));
  EXPECT_THAT(OptimizerFault({"Adam", {{"weight_decay", 0.1}}}),
              HasSubstr("'weight_decay' changes all rows in every update"));
  EXPECT_EQ(
      OptimizerFault({"SGD", {{"clipnorm", 1}}}),
      "optimizer SGD: 'clipnorm' is a norm over all rows, which a table lacks; clipvalue limits elements");
  EXPECT_THAT(OptimizerFault({"SGD", {{"clipvalue", 1}, {"row_clipnorm", 1}}}),
              HasSubstr("only one of clipvalue and"));
  EXPECT_EQ(OptimizerFault({"Ftrl", {{"learning_rate_power", -0.3}}}),
            "optimizer Ftrl: the learning_rate_power of a table must be -0.5");
  EXPECT_EQ(OptimizerFault({"Adam", {{"catch_up", 1}, {"beta_1", 0.97}}}),
            "optimizer Adam: catch_up needs a beta_1 of at most 0.95 and a beta_2 from 0.99 to 0.9999, not "
            "0.97 and "
            "0.999");
}

TEST(FirstNonFiniteRow, FindsTheFirstOfSeveral) {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  for (const optim::Isa isa : optim::SupportedIsas()) {
    std::vector<float> gradients(7 * 1500, std::numeric_limits<float>::max());
    EXPECT_EQ(FirstNonFiniteRow(gradients, 7, isa), kAllRowsFinite);
    gradients[7 * 1499 + 6] = -kInf;
    EXPECT_EQ(FirstNonFiniteRow(gradients, 7, isa), 1499);
    gradients[7 * 700] = kNan;
    EXPECT_EQ(FirstNonFiniteRow(gradients, 7, isa), 700);
    gradients[3] = kInf;
    EXPECT_EQ(FirstNonFiniteRow(gradients, 7, isa), 0);
  }
  EXPECT_EQ(FirstNonFiniteRow({}, 7), kAllRowsFinite);
}

}  // namespace
}  // namespace cairn::embedding
