#include "ps/table/dense_table.h"

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two elements under SGD at rate 1 with momentum 0.5, which has one slot.
class DenseTableTest : public testing::Test {
 protected:
  static Gradient Of(int worker, int64_t examples = 1) {
    return {.key = {.worker = worker, .incarnation = 1, .step = 1}, .examples = examples};
  }
  std::shared_ptr<const TableGradient> Push(const Gradient& gradient, std::vector<float> values) {
    auto push = table_.BeginPush({.gradient = gradient});
    EXPECT_EQ(push->AddChunk(ChunkAt(0), Bytes(std::move(values))), absl::OkStatus());
    EXPECT_EQ(push->CheckComplete(), absl::OkStatus());
    return push->Take();
  }
  TableUpdate Next() const { return {.version = table_.store().current().version + 1, .known = &known_}; }
  std::vector<float> Values() const { return ToVector(table_.store().current()); }

  const std::unique_ptr<optim::Optimizer> optimizer_ =
      optim::MakeOptimizer({.name = "SGD", .hyperparameters = {{"learning_rate", 1}, {"momentum", 0.5}}})
          .value();
  const optim::VariableSquares known_;
  const Gradient first_ = Of(0), second_ = Of(1, 3);
  DenseTable table_{Vectors({{"a", 2}}), optimizer_.get(), {}};
};

TEST_F(DenseTableTest, AnUpdateFromItsMeanGivesTheSameValues) {
  TableUpdate update = Next();
  update.contributions.push_back({&first_, Push(first_, {4, 8})});
  update.contributions.push_back({&second_, Push(second_, {8, 16})});
  const auto mean = table_.Mean(update);
  ASSERT_TRUE(mean.ok());
  EXPECT_THAT((*mean)->span(), ElementsAre(7, 14));
  DenseTable backup(Vectors({{"a", 2}}), optimizer_.get(), {});
  TableUpdate replicated = Next();
  replicated.mean = &*mean;
  ASSERT_EQ(backup.Apply(replicated), absl::OkStatus());
  ASSERT_EQ(table_.Apply(update), absl::OkStatus());
  EXPECT_THAT(Values(), ElementsAre(-7, -14));
  EXPECT_EQ(ToVector(backup.store().current()), Values());
}

TEST_F(DenseTableTest, WithoutExamplesThereIsNoMeanAndTheOptimizerStillRuns) {
  TableUpdate update = Next();
  update.contributions.push_back({&first_, Push(first_, {2, 4})});
  ASSERT_EQ(table_.Apply(update), absl::OkStatus());
  const Gradient none = Of(0, 0);
  update = Next();
  update.contributions.push_back({&none, nullptr});
  const auto mean = table_.Mean(update);
  ASSERT_TRUE(mean.ok());
  EXPECT_EQ(*mean, nullptr);
  ASSERT_EQ(table_.Apply(update), absl::OkStatus());
  EXPECT_THAT(Values(), ElementsAre(-3, -6)) << "the momentum continues";
}

TEST_F(DenseTableTest, AContributorWithExamplesMustHaveElements) {
  TableUpdate update = Next();
  update.contributions.push_back({&second_, nullptr});
  EXPECT_THAT(table_.Apply(update).message(),
              HasSubstr("computed from 3 examples, but this server received"));
  EXPECT_FALSE(table_.Mean(update).ok());
  EXPECT_THAT(Values(), ElementsAre(0, 0));
}

TEST_F(DenseTableTest, ChunksOfAPushWithoutExamplesAreNotStored) {
  auto push = table_.BeginPush({.gradient = Of(0, 0)});
  EXPECT_TRUE(push->DestinationFor(ChunkAt(0), 1).empty());
  EXPECT_EQ(push->AddChunk(ChunkAt(7), Bytes({1})), absl::OkStatus());
  EXPECT_EQ(push->CheckComplete(), absl::OkStatus());
  EXPECT_EQ(push->Take(), nullptr);
}

TEST_F(DenseTableTest, ContinuesFromASavedState) {
  TableUpdate update = Next();
  update.contributions.push_back({&first_, Push(first_, {2, 4})});
  ASSERT_EQ(table_.Apply(update), absl::OkStatus());
  auto state = table_.Save(/*beyond_budget=*/false);
  ASSERT_TRUE(state.ok());
  DenseTable other(Vectors({{"a", 2}}), optimizer_.get(), {});
  ASSERT_EQ(other.CheckState(*state), absl::OkStatus());
  other.Restore(1, *std::move(state));
  EXPECT_EQ(other.store().current().version, 1);
  update = Next();
  update.contributions.push_back({&first_, Push(first_, {2, 4})});
  ASSERT_EQ(table_.Apply(update), absl::OkStatus());
  ASSERT_EQ(other.Apply(update), absl::OkStatus());
  EXPECT_EQ(ToVector(other.store().current()), Values());
}

TEST_F(DenseTableTest, RefusesAStateOfAnotherSize) {
  EXPECT_THAT(table_.CheckState({std::make_shared<AlignedBuffer>(2)}).message(),
              HasSubstr("a replicated state has 2 values, expected 4"));
}

}  // namespace
}  // namespace cairn::ps
