#include "optim/update.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <vector>

#include "common/core/random.h"
#include "common/system/thread_pool.h"
#include "gtest/gtest.h"
#include "tests/support/whole_update.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

// Values of 0 after one plain step at rate 1 with the options of `numbers`: minus the clipped mean.
std::vector<float> StepFromZero(std::map<std::string, double> numbers, const std::vector<UpdateSlice>& slices,
                                const std::vector<ContributedGradient>& gradients, size_t count) {
  numbers["learning_rate"] = 1;
  const auto sgd = MakeOptimizer({"SGD", numbers}).value();
  const std::vector<float> zeros(count);
  std::vector<float> result(count);
  EXPECT_EQ(UpdateWhole(*sgd, {1, 1}, gradients, slices,
                        {static_cast<int64_t>(count), zeros.data(), {}, result.data()}),
            kAllFinite);
  return result;
}

const std::vector<float> kPythagorean = {3, 4, 6, 8};  // norms 5 and 10, together sqrt(125)
const std::vector<UpdateSlice> kTwoVariables = {{0, 2}, {2, 4}};

TEST(Clipnorm, LimitsTheNormOfEachVariable) {
  EXPECT_EQ(StepFromZero({{"clipnorm", 5}}, kTwoVariables, {{kPythagorean.data(), 1}}, 4),
            (std::vector<float>{-3, -4, -3, -4}));
}

TEST(Clipnorm, AppliesToTheMeanNotToItsGradients) {
  const std::vector<float> other = {-3, -4, 6, 8};
  EXPECT_EQ(StepFromZero({{"clipnorm", 5}}, kTwoVariables, {{kPythagorean.data(), 1}, {other.data(), 1}}, 4),
            (std::vector<float>{0, 0, -3, -4}));
}

TEST(Clipnorm, DoesNotChangeASmallerGradient) {
  const std::vector<float> gradient = {0.1f, 0.7f};
  EXPECT_EQ(StepFromZero({{"clipnorm", 1}}, {{0, 2}}, {{gradient.data(), 1}}, 2),
            (std::vector<float>{-0.1f, -0.7f}));
}

TEST(GlobalClipnorm, LimitsTheNormOfAllVariablesTogether) {
  const double limit = std::sqrt(125.0) / 2;
  ExpectNear(StepFromZero({{"global_clipnorm", limit}}, kTwoVariables, {{kPythagorean.data(), 1}}, 4),
             {-1.5, -2, -3, -4});
}

TEST(GlobalClipnorm, IgnoresUntouchedSlices) {
  const std::vector<float> gradient = {3, 4, 1000, 0};
  const std::vector<UpdateSlice> slices = {{.begin = 0, .end = 2}, {.begin = 2, .end = 4, .untouched = true}};
  EXPECT_EQ(StepFromZero({{"global_clipnorm", 5}}, slices, {{gradient.data(), 1}}, 4),
            (std::vector<float>{-3, -4, 0, 0}));
}

TEST(UpdateSlices, ALayerwiseRuleLeavesAnUntouchedSliceAlone) {
  const auto lamb = MakeOptimizer({"Lamb", {{"learning_rate", 1}}}).value();
  const std::vector<float> gradient = {3, 4, 5, 6}, values = {1, 2, 3, 4};
  std::vector<float> m = {0, 0, 7, 8}, v = {0, 0, 9, 10}, result(4);
  const std::vector<Slot> slots = {InPlace(m.data()), InPlace(v.data())};
  const ContributedGradient weighted = {gradient.data(), 1};
  const std::vector<UpdateSlice> slices = {{.begin = 0, .end = 2}, {.begin = 2, .end = 4, .untouched = true}};
  EXPECT_EQ(UpdateWhole(*lamb, {1, 1}, {&weighted, 1}, slices, {4, values.data(), slots, result.data()}),
            kAllFinite);
  EXPECT_NE(result[0], 1);
  EXPECT_EQ(std::vector<float>(result.begin() + 2, result.end()), (std::vector<float>{3, 4}));
  EXPECT_EQ(std::vector<float>(m.begin() + 2, m.end()), (std::vector<float>{7, 8}));
  EXPECT_EQ(std::vector<float>(v.begin() + 2, v.end()), (std::vector<float>{9, 10}));
}

TEST(GlobalClipnorm, IgnoresMovingAverages) {
  const std::vector<float> gradient = {3, 4, 1000, 0};
  const std::vector<UpdateSlice> slices = {{0, 2}, {2, 4, 0.5f}};
  EXPECT_EQ(StepFromZero({{"global_clipnorm", 5}}, slices, {{gradient.data(), 1}}, 4),
            (std::vector<float>{-3, -4, 500, 0}));
}

TEST(Clipvalue, LimitsEachElementOfTheMean) {
  const std::vector<float> a = {4, -4, 0.5f}, b = {-4, -2, 0.5f};
  EXPECT_EQ(StepFromZero({{"clipvalue", 1}}, {{0, 3}}, {{a.data(), 1}, {b.data(), 1}}, 3),
            (std::vector<float>{0, 1, -0.5f}));
}

TEST(WeightDecay, ComesBeforeTheRuleAndFollowsTheRate) {
  TrainedVariable variable({"SGD", {{"learning_rate", 0.5}, {"weight_decay", 0.25}}}, {8, -8});
  variable.Step({2, 0});  // 8 - 8 * 0.25 * 0.5 - 0.5 * 2
  EXPECT_EQ(variable.values(), (std::vector<float>{6, -7}));
}

TEST(Ema, TheLastUpdateLeavesTheAverage) {
  TrainedVariable variable({"SGD", {{"learning_rate", 1}, {"use_ema", 1}, {"ema_momentum", 0.5}}}, {4});
  variable.Step({2});  // the average starts at the first new value
  EXPECT_EQ(variable.values()[0], 2);
  EXPECT_EQ(variable.slots()[0][0], 2);
  variable.Step({2}, /*last=*/true);  // 0, and the average halfway to it
  EXPECT_EQ(variable.values()[0], 1);
  EXPECT_EQ(variable.slots()[0][0], 1);
  EXPECT_EQ(variable.optimizer().slot_names().back(), "average");
}

TEST(Ema, WorksWithALayerwiseRule) {
  TrainedVariable plain({"Lamb", {{"learning_rate", 0.5}}}, {4, 3});
  TrainedVariable averaged({"Lamb", {{"learning_rate", 0.5}, {"use_ema", 1}, {"ema_momentum", 0.5}}}, {4, 3});
  std::vector<double> average;
  for (int step = 0; step < 3; ++step) {
    plain.Step({1, 2});
    averaged.Step({1, 2});
    if (step == 0) average.assign(plain.values().begin(), plain.values().end());
    for (size_t i = 0; i < 2; ++i) average[i] = (average[i] + plain.values()[i]) / 2;
  }
  EXPECT_EQ(averaged.values(), plain.values());
  ExpectNear(averaged.slots().back(), average);
}

std::vector<float> MoveAverage(float momentum, const std::vector<float>& old_values,
                               const std::vector<WeightedGradient>& statistics) {
  std::vector<float> result(old_values.size());
  EXPECT_EQ(
      ApplyMovingAverage(momentum, statistics,
                         {static_cast<int64_t>(old_values.size()), old_values.data(), {}, result.data()}),
      kAllFinite);
  return result;
}

TEST(MovingAverage, TakesTheMeanOfTheContributorsByTheirExamples) {
  const std::vector<float> a = {4, 0}, b = {8, 16};
  EXPECT_EQ(MoveAverage(0.75f, {2, 4}, {{a.data(), 3}, {b.data(), 1}}), (std::vector<float>{2.75f, 4}));
}

TEST(MovingAverage, AtAMomentumOfOneNothingIsReadAndNothingChanges) {
  const std::vector<float> nan = {std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(MoveAverage(1, {2}, {{nan.data(), 1}}), (std::vector<float>{2}));
}

TEST(MovingAverage, WithoutAnyExampleNothingChanges) {
  EXPECT_EQ(MoveAverage(0.5f, {2}, {{nullptr, 0}}), (std::vector<float>{2}));
}

TEST(UpdateSlices, AMovingAverageIgnoresTheOptimizer) {
  TrainedVariable variable({"Adam",
                            {{"learning_rate", 1},
                             {"clipvalue", 0.5},
                             {"weight_decay", 0.5},
                             {"use_ema", 1},
                             {"ema_overwrite_frequency", 1}}},
                           {8, 8});
  const std::vector<float> gradient = {1, 16};
  const ContributedGradient mean = {gradient.data(), 1};
  const std::vector<UpdateSlice> slices = {{0, 1}, {1, 2, 0.5f}};
  const std::vector<Slot> slots = variable.slots_in_place();
  std::vector<float> next(2);
  ASSERT_EQ(UpdateWhole(variable.optimizer(), {1, 1}, {&mean, 1}, slices,
                        {2, variable.values().data(), slots, next.data()}),
            kAllFinite);
  // 1e-5: Adam's epsilon compared with sqrt(0.001) times a gradient of 0.5.
  EXPECT_NEAR(next[0], 3, 1e-5) << "8 decays to 4, and Adam's first step is the rate";
  EXPECT_EQ(next[1], 12);
  for (const std::vector<float>& slot : variable.slots()) EXPECT_EQ(slot[1], 0);
}

TEST(UpdateSlices, TheFirstBadElementIsReportedAsAnIndexInAllValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* clip : {"clipvalue", "clipnorm", "global_clipnorm"}) {
    const auto sgd = MakeOptimizer({"SGD", {{clip, 1}}}).value();
    const std::vector<float> gradient = {1, 2, 3, nan, nan}, zeros(5);
    const ContributedGradient mean = {gradient.data(), 1};
    const std::vector<UpdateSlice> slices = {{0, 2}, {2, 5}};
    std::vector<float> next(5);
    EXPECT_EQ(UpdateWhole(*sgd, {1, 1}, {&mean, 1}, slices, {5, zeros.data(), {}, next.data()}), 3) << clip;
  }
  const auto sgd = MakeOptimizer({"SGD", {}}).value();
  const std::vector<float> gradient = {1, nan}, zeros(2);
  const ContributedGradient mean = {gradient.data(), 1};
  const std::vector<UpdateSlice> slices = {{0, 1}, {1, 2, 0.5f}};
  std::vector<float> next(2);
  EXPECT_EQ(UpdateWhole(*sgd, {1, 1}, {&mean, 1}, slices, {2, zeros.data(), {}, next.data()}), 1)
      << "of a statistic too";
}

// Large enough for several blocks and an odd tail.
class EveryIsa : public testing::TestWithParam<OptimizerConfig> {};

TEST_P(EveryIsa, GivesTheSameNormsToTheBit) {
  constexpr int64_t kCount = 6151;
  Random random(1, "update_test");
  std::vector<float> values, gradient;
  for (int64_t i = 0; i < kCount; ++i) {
    values.push_back(random.NextNormal());
    gradient.push_back(random.NextNormal());
  }
  TrainedVariable expected(GetParam(), values, Isa::kBaseline);
  for (int step = 0; step < 3; ++step) expected.Step(gradient);
  for (Isa isa : SupportedIsas()) {
    TrainedVariable actual(GetParam(), values, isa);
    for (int step = 0; step < 3; ++step) actual.Step(gradient);
    EXPECT_EQ(std::memcmp(actual.values().data(), expected.values().data(), kCount * sizeof(float)), 0)
        << IsaName(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(Norms, EveryIsa,
                         testing::Values(OptimizerConfig{"Adam", {{"clipnorm", 0.1}}},
                                         OptimizerConfig{"SGD", {{"global_clipnorm", 0.1}, {"use_ema", 1}}},
                                         OptimizerConfig{"Lamb", {{"weight_decay", 0.1}, {"use_ema", 1}}}));

// A gradient, once in one block and once in separate runs.
struct InRuns {
  InRuns(int64_t count, Random& random) {
    for (int64_t i = 0; i < count; ++i) whole.push_back(random.NextNormal());
    for (int64_t begin = 0, size; begin < count; begin += size) {
      size = std::min<int64_t>(count - begin, 1 + static_cast<int64_t>(random.NextBelow(1500)));
      pieces.emplace_back(whole.begin() + begin, whole.begin() + begin + size);
      runs.push_back({begin, pieces.back().data()});
    }
  }
  std::vector<float> whole;
  std::deque<std::vector<float>> pieces;
  std::vector<ElementRun> runs;
};

class UpdateOfRuns : public testing::TestWithParam<OptimizerConfig> {};

TEST_P(UpdateOfRuns, GivesTheSameBits) {
  constexpr int64_t kCount = 300'001;  // enough for the thread pool
  Random random(5, "update_test");
  std::deque<InRuns> workers;
  std::vector<ContributedGradient> whole, in_runs;
  for (int64_t examples : {3, 1, 2}) {
    const InRuns& gradient = workers.emplace_back(kCount, random);
    ASSERT_GT(gradient.runs.size(), 100u);
    whole.emplace_back(gradient.whole.data(), examples);
    in_runs.emplace_back(gradient.runs, examples);
  }
  in_runs[1] = whole[1];
  const std::vector<float> zeros(kCount);
  const std::vector<UpdateSlice> slices = {{0, 1'000}, {1'000, 9'000, 0.5f}, {9'000, kCount}};
  ThreadPool thread_pool(2);
  std::vector<std::vector<float>> results;
  for (const auto& gradients : {whole, in_runs}) {
    TrainedVariable variable(GetParam(), zeros);
    const std::vector<Slot> slots = variable.slots_in_place();
    std::vector<float>& next = results.emplace_back(kCount);
    ASSERT_EQ(UpdateWhole(variable.optimizer(), {1, 0.1f}, gradients, slices,
                          {kCount, variable.values().data(), slots, next.data()}, WidestIsa(), &thread_pool),
              kAllFinite);
    for (const std::vector<float>& slot : variable.slots()) next.insert(next.end(), slot.begin(), slot.end());
    std::vector<float> mean(kCount);
    WriteMean(gradients, 0, kCount, mean.data());
    next.insert(next.end(), mean.begin(), mean.end());
  }
  EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)), 0);
}

TEST_P(UpdateOfRuns, ReportsTheFirstBadElementAsAnIndexInAllValues) {
  Random random(6, "update_test");
  InRuns gradient(10'000, random);
  ASSERT_GT(gradient.runs.size(), 5u);
  gradient.pieces[4][0] = std::numeric_limits<float>::infinity();
  const std::vector<float> zeros(10'000);
  TrainedVariable variable(GetParam(), zeros);
  const std::vector<Slot> slots = variable.slots_in_place();
  std::vector<float> next(10'000);
  const ContributedGradient mean(gradient.runs, 1);
  EXPECT_EQ(UpdateWhole(variable.optimizer(), {1, 0.1f}, {&mean, 1}, {{0, 10'000}},
                        {10'000, variable.values().data(), slots, next.data()}),
            gradient.runs[4].begin);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, UpdateOfRuns,
                         testing::Values(OptimizerConfig{"Adam", {}},
                                         OptimizerConfig{"SGD", {{"clipvalue", 0.5}}},
                                         OptimizerConfig{"Adam", {{"clipnorm", 0.1}}},
                                         OptimizerConfig{"SGD", {{"global_clipnorm", 0.1}, {"use_ema", 1}}},
                                         OptimizerConfig{"Lamb", {{"weight_decay", 0.1}, {"use_ema", 1}}}));

// Two halves of a variable, each with its own sums, as on two servers.
TEST_P(EveryIsa, APartWithTheVariablesSumsMovesAsInTheWhole) {
  constexpr int64_t kCount = 4096, kHalf = kCount / 2;
  Random random(4, "update_test");
  std::vector<float> values, gradient;
  for (int64_t i = 0; i < kCount; ++i) {
    values.push_back(random.NextNormal());
    gradient.push_back(random.NextNormal());
  }
  TrainedVariable whole(GetParam(), values), halves(GetParam(), values);
  whole.Step(gradient);
  const ContributedGradient mean = {gradient.data(), 1};
  const UpdateSlice slices[] = {{0, kHalf, {}, kHalf}, {kHalf, kCount, {}, kHalf}};
  std::vector<float> next(kCount);
  const std::vector<Slot> slots = halves.slots_in_place();
  KnownSquares known;
  const Update update = {.optimizer = halves.optimizer(),
                         .step = {1, halves.optimizer().learning_rate(0)},
                         .gradients = {&mean, 1},
                         .slices = slices,
                         .all = {kCount, halves.values().data(), slots, next.data()},
                         .known = known};
  for (Norms norms : halves.optimizer().norms()) {
    const MeasuredSlices measured = MeasureSlices(norms, update);
    ASSERT_EQ(measured.non_finite, kAllFinite);
    Squares sum = measured.of_slice[0][0];
    sum += measured.of_slice[1][0];
    known = {.of_slice = {sum, sum}, .all_gradients = sum.gradient};
  }
  EXPECT_EQ(UpdateSlices(update), kAllFinite);
  for (size_t i = 0; i < kCount; ++i) {  // the sum over the whole is taken in another order
    ASSERT_NEAR(next[i], whole.values()[i], 1e-6 * (1 + std::abs(whole.values()[i]))) << i;
  }
}

TEST(SquaresOfMean, AgreesWithANaiveSumInDouble) {
  Random random(2, "update_test");
  std::vector<float> a, b;
  for (int i = 0; i < 5001; ++i) {
    a.push_back(random.NextNormal());
    b.push_back(random.NextNormal());
    double sum = 0;
    if (i % 500 != 0 && i != 17) continue;
    for (size_t k = 0; k < a.size(); ++k) {
      const float mean = (a[k] + b[k]) / 2;
      sum += static_cast<double>(mean) * mean;
    }
    const auto sums = SquaresOfMean({{a.data(), 7}, {b.data(), 7}}, i + 1, i + 1);
    ASSERT_EQ(sums.size(), 1u);
    EXPECT_NEAR(sums[0].gradient, sum, 1e-12 * sum);
  }
}

TEST(SquaresOfMean, EachBandIsSummedAsItWouldBeAlone) {
  Random random(3, "update_test");
  std::vector<float> values;
  for (int i = 0; i < 10007; ++i) values.push_back(random.NextNormal());
  const std::vector<Squares> whole = SquaresOfMean({{values.data(), 1}}, 10007, 2500);
  ASSERT_EQ(whole.size(), 5u);
  for (int64_t band = 0; band < 5; ++band) {
    const int64_t begin = 2500 * band;
    const int64_t count = std::min<int64_t>(2500, 10007 - begin);
    EXPECT_EQ(SquaresOfMean({{values.data() + begin, 1}}, count, 2500),
              std::vector{whole[static_cast<size_t>(band)]});
  }
}

TEST(SquaresOfMean, HoldsTheSquaresOfTheLargestFloats) {
  const std::vector<float> largest(100, std::numeric_limits<float>::max());
  EXPECT_NEAR(SquaresOfMean({{largest.data(), 1}}, 100, 100)[0].gradient / 1.1579208e79, 1, 1e-6);
}

// A variable and a moving average, long enough to be shared by a thread pool; the cuts are in the middle
// of neither.
struct Long {
  static constexpr int64_t kCount = 300'001;
  const std::vector<UpdateSlice> slices = {{0, 170'003}, {170'003, kCount, 0.5f}};
  std::vector<float> old_values, gradient, m, v, new_values;

  Long() : m(kCount), v(kCount), new_values(kCount) {
    Random random(1, 1);
    for (int64_t i = 0; i < kCount; ++i) {
      old_values.push_back(random.NextUniform());
      gradient.push_back(random.NextUniform());
    }
  }
  int64_t Update(ThreadPool* thread_pool, const char* optimizer) {
    const auto made = MakeOptimizer({optimizer, {}}).value();
    const Slot slots[] = {InPlace(m.data()), InPlace(v.data())};
    return UpdateWhole(*made, {1, 0.1f}, {{{gradient.data(), 3}}}, slices,
                       {kCount, old_values.data(), slots, new_values.data()}, WidestIsa(), thread_pool);
  }
};

TEST(UpdateSlices, AnyNumberOfThreadsGivesTheSameBits) {
  for (const char* optimizer : {"Adam", "Lamb"}) {
    Long alone;
    ASSERT_EQ(alone.Update(nullptr, optimizer), kAllFinite);
    for (int size : {2, 3, 7}) {
      ThreadPool thread_pool(size);
      Long shared;
      ASSERT_EQ(shared.Update(&thread_pool, optimizer), kAllFinite);
      EXPECT_TRUE(shared.new_values == alone.new_values && shared.m == alone.m && shared.v == alone.v)
          << optimizer << ", " << size;
    }
  }
}

TEST(UpdateSlices, TheFirstNonFiniteElementOfAllThreadsIsReported) {
  ThreadPool thread_pool(3);
  Long shared;
  shared.gradient[150'000] = shared.gradient[290'000] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(shared.Update(&thread_pool, "Adam"), 150'000);
}

}  // namespace
}  // namespace cairn::optim
