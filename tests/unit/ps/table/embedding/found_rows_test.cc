// The rows that reads found: by the ids of the read, for as long as the rows exist, within the budget.
#include "ps/table/embedding/found_rows.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class FoundRowsTest : public testing::Test {
 protected:
  const std::shared_ptr<optim::MemoryBudget> budget_ = std::make_shared<optim::MemoryBudget>(1 << 10);
  FoundRows found_{budget_};
  float a_ = 0, b_ = 0;
};

TEST_F(FoundRowsTest, TheRowsOfAReadAreTakenOnceByItsIds) {
  found_.Keep({7, 8, 9}, {&a_, nullptr, &b_});
  EXPECT_THAT(found_.Take({7, 8}), IsEmpty());
  EXPECT_THAT(found_.Take({8, 7, 9}), IsEmpty());
  EXPECT_THAT(found_.Take({7, 8, 9}), ElementsAre(&a_, nullptr, &b_));
  EXPECT_THAT(found_.Take({7, 8, 9}), IsEmpty());
  EXPECT_EQ(budget_->used(), 0);
}

TEST_F(FoundRowsTest, TheLatestReadCounts) {
  found_.Keep({7}, {nullptr});
  found_.Keep({7}, {&a_});
  EXPECT_THAT(found_.Take({7}), ElementsAre(&a_));
}

TEST_F(FoundRowsTest, ClearedReadsGiveTheirMemoryBack) {
  EXPECT_FALSE(found_.Clear());
  found_.Keep({7}, {&a_});
  EXPECT_TRUE(found_.Clear());
  EXPECT_THAT(found_.Take({7}), IsEmpty());
  EXPECT_EQ(budget_->used(), 0);
}

TEST_F(FoundRowsTest, ReadsOfAnEvaluationEndNothing) {
  for (int64_t id = 0; id < 30; ++id) found_.Keep({id}, {&a_});
  EXPECT_THAT(found_.Take({29}), ElementsAre(&a_));
}

TEST_F(FoundRowsTest, AfterUpdatesWithoutAReadOfTheirIdsNothingIsKept) {
  for (size_t i = 0; i < FoundRows::kMaxReads; ++i) {
    found_.Keep({7}, {&a_});
    EXPECT_THAT(found_.Take({8}), IsEmpty());
  }
  EXPECT_EQ(budget_->used(), 0);
  found_.Keep({7}, {&a_});
  EXPECT_EQ(budget_->used(), 0);
}

TEST_F(FoundRowsTest, UpdatesOfABackupDoNotCount) {
  for (size_t i = 0; i < 2 * FoundRows::kMaxReads; ++i) EXPECT_THAT(found_.Take({8}), IsEmpty());
  found_.Keep({7}, {&a_});
  EXPECT_THAT(found_.Take({7}), ElementsAre(&a_));
}

TEST_F(FoundRowsTest, OldReadsAreForgotten) {
  for (int64_t id = 0; id < static_cast<int64_t>(FoundRows::kMaxReads) + 1; ++id) found_.Keep({id}, {&a_});
  EXPECT_THAT(found_.Take({0}), IsEmpty());
  EXPECT_THAT(found_.Take({1}), ElementsAre(&a_));
  EXPECT_EQ(budget_->used(), static_cast<int64_t>(FoundRows::kMaxReads - 1) * FoundRows::BytesOf(1));
}

TEST_F(FoundRowsTest, NothingIsKeptBeyondTheBudget) {
  const std::vector<int64_t> ids(100);
  found_.Keep(ids, std::vector<float*>(100, &a_));
  EXPECT_THAT(found_.Take(ids), IsEmpty());
  EXPECT_EQ(budget_->used(), 0);
}

}  // namespace
}  // namespace cairn::ps
