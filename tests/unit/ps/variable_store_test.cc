#include "ps/variable_store.h"

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

TEST(EmptyVariableStore, CountsVersionsToo) {
  const auto sgd = Sgd(1);
  VariableStore store({}, sgd.get());
  const WeightedGradient nothing = {nullptr, 1};
  ASSERT_TRUE(store.ApplyMean({&nothing, 1}).ok());
  EXPECT_EQ(store.current().version, 1);
}

}  // namespace
}  // namespace cairn::ps
