#include "ps/variable_store.h"

#include <algorithm>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class VariableStoreTest : public testing::Test {
 protected:
  absl::Status Apply(const std::vector<float>& gradient) {
    const WeightedGradient weighted = {gradient.data(), 1};
    return store_.ApplyMean({&weighted, 1});
  }
  const std::unique_ptr<Optimizer> sgd_ = Sgd(1);
  VariableStore store_{Vectors({{"a", 2}, {"b", 1}}), sgd_.get()};
};

TEST_F(VariableStoreTest, StartsAtZeroAndVersionZero) {
  EXPECT_EQ(store_.current().version, 0);
  EXPECT_THAT(ToVector(store_.current()), ElementsAre(0, 0, 0));
}

TEST_F(VariableStoreTest, AReaderKeepsItsVersionWhileUpdatesGoOn) {
  ASSERT_TRUE(Apply({1, 1, 1}).ok());
  const Values held = store_.current();
  for (int update = 0; update < 100; ++update) ASSERT_TRUE(Apply({1, 1, 1}).ok());
  EXPECT_EQ(held.version, 1);
  EXPECT_THAT(ToVector(held), Each(-1));
  EXPECT_EQ(store_.current().version, 101);
  EXPECT_THAT(ToVector(store_.current()), Each(-101));
}

TEST_F(VariableStoreTest, AWriteReplacesItsRunsAndKeepsTheVersion) {
  ASSERT_TRUE(Apply({1, 1, 1}).ok());
  const Values before = store_.current();
  AlignedBuffer data(3);
  data.data()[1] = 5;
  const VariableStore::Run run = {1, 2};
  store_.Write(data, {&run, 1});
  EXPECT_EQ(store_.current().version, 1);
  EXPECT_THAT(ToVector(store_.current()), ElementsAre(-1, 5, -1));
  EXPECT_THAT(ToVector(before), Each(-1)) << "who read before keeps what it has";
}

TEST_F(VariableStoreTest, AGradientThatIsNotFiniteNamesItsVariableAndPublishesNothing) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const absl::Status status = Apply({1, 1, bad});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'b' is not finite in the update to version 1"));
    EXPECT_EQ(store_.current().version, 0);
    EXPECT_THAT(ToVector(store_.current()), Each(0));
  }
}

TEST_F(VariableStoreTest, TheMeanWeighsByExamples) {
  const std::vector<float> one = {4, 4, 4}, three = {8, 8, 8};
  const WeightedGradient gradients[] = {{one.data(), 1}, {three.data(), 3}};
  ASSERT_TRUE(store_.ApplyMean(gradients).ok());
  EXPECT_THAT(ToVector(store_.current()), Each(-7));
}

absl::Status ApplyTo(VariableStore& store, const std::vector<float>& gradient, bool last = false) {
  const WeightedGradient weighted = {gradient.data(), 1};
  return store.ApplyMean({&weighted, 1}, last);
}

TEST(VariableStoreParts, MovingAveragesAndFrozenSlicesLieBetweenTrainedOnes) {
  std::vector<net::Slice> slices = Vectors({{"kernel", 1}, {"mean", 1}, {"frozen", 1}, {"bias", 1}});
  slices[1].moving_average_momentum = 0.75f;
  slices[2].moving_average_momentum = 1;
  const auto sgd = Sgd(1);
  VariableStore store(slices, sgd.get());
  AlignedBuffer initial(4);
  std::fill_n(initial.data(), 4, 8.0f);
  const VariableStore::Run everything = {0, 4};
  store.Write(initial, {&everything, 1});
  ASSERT_TRUE(ApplyTo(store, {1, 16, 100, 2}).ok());
  EXPECT_THAT(ToVector(store.current()), ElementsAre(7, 10, 8, 6));
}

TEST(VariableStoreParts, ABadStatisticIsNamedToo) {
  std::vector<net::Slice> slices = Vectors({{"kernel", 2}, {"mean", 2}});
  slices[1].moving_average_momentum = 0.5f;
  const auto sgd = Sgd(1);
  VariableStore store(slices, sgd.get());
  const absl::Status status = ApplyTo(store, {1, 1, 1, std::numeric_limits<float>::infinity()});
  EXPECT_THAT(std::string(status.message()), HasSubstr("'mean' is not finite"));
}

TEST(VariableStoreParts, NormsAreOfEachVariable) {
  const auto sgd =
      MakeOptimizer({.name = "SGD", .hyperparameters = {{"learning_rate", 1}, {"clipnorm", 5}}}).value();
  VariableStore store(Vectors({{"a", 2}, {"b", 2}}), sgd.get());
  ASSERT_TRUE(ApplyTo(store, {3, 4, 6, 8}).ok());
  EXPECT_THAT(ToVector(store.current()), ElementsAre(-3, -4, -3, -4));
}

TEST(VariableStoreUpdates, TakeTheRateThatTheScheduleHasForTheirVersion) {
  OptimizerConfig config = {"SGD", {}};
  config.schedule = {"PiecewiseConstantDecay", {}, {1}, {4, 1}};
  const auto sgd = MakeOptimizer(config).value();
  VariableStore store(Vectors({{"a", 1}}), sgd.get());
  for (float expected : {-4.0f, -8.0f, -9.0f}) {
    ASSERT_TRUE(ApplyTo(store, {1}).ok());
    EXPECT_THAT(ToVector(store.current()), ElementsAre(expected));
  }
}

TEST(VariableStoreUpdates, TheLastLeavesTheAverage) {
  const auto sgd =
      MakeOptimizer(
          {.name = "SGD", .hyperparameters = {{"learning_rate", 1}, {"use_ema", 1}, {"ema_momentum", 0.5}}})
          .value();
  VariableStore store(Vectors({{"a", 1}}), sgd.get());
  ASSERT_TRUE(ApplyTo(store, {2}).ok());
  ASSERT_TRUE(ApplyTo(store, {2}, /*last=*/true).ok());
  EXPECT_THAT(ToVector(store.current()), ElementsAre(-3));
}

TEST(EmptyVariableStore, CountsVersionsToo) {
  const auto sgd = Sgd(1);
  VariableStore store({}, sgd.get());
  const WeightedGradient nothing = {nullptr, 1};
  ASSERT_TRUE(store.ApplyMean({&nothing, 1}).ok());
  EXPECT_EQ(store.current().version, 1);
}

}  // namespace
}  // namespace cairn::ps
