#include "optim/store/buffer_pool.h"

#include "gtest/gtest.h"

namespace cairn::optim {
namespace {

// A pool of 8-byte buffers, with a budget for two and a half.
class BufferPoolTest : public testing::Test {
 protected:
  std::shared_ptr<MemoryBudget> budget_ = std::make_shared<MemoryBudget>(20);
  BufferPool pool_{/*size=*/2, /*max_idle=*/16, budget_};
};

TEST_F(BufferPoolTest, BuffersBeyondTheBudgetAreRefusedWithTheNumbers) {
  const auto one = pool_.TryAcquire(), two = pool_.TryAcquire();
  EXPECT_NE(two, nullptr);
  EXPECT_EQ(pool_.TryAcquire(), nullptr);
  EXPECT_FALSE(pool_.HasRoom());
  EXPECT_EQ(pool_.Refusal("chunks"),
            absl::ResourceExhaustedError("no memory for chunks, 8 B: 16 B of 20 B are in "
                                         "use (--memory_limit)"));
}

TEST_F(BufferPoolTest, AcquireExceedsTheBudgetAndTheBufferIsNotReused) {
  auto one = pool_.Acquire(), two = pool_.Acquire(), three = pool_.Acquire();
  EXPECT_EQ(budget_->used(), 24);
  three = nullptr;
  EXPECT_EQ(budget_->used(), 16) << "beyond the limit no buffer is kept for reuse";
  two = nullptr;
  EXPECT_EQ(budget_->used(), 16) << "idle, and still allocated";
}

TEST_F(BufferPoolTest, IdleBuffersDoNotCountAgainstRoomAndCanBeDropped) {
  pool_.Acquire();
  auto one = pool_.TryAcquire();
  EXPECT_EQ(budget_->used(), 8);
  auto two = pool_.TryAcquire();
  EXPECT_EQ(budget_->used(), 16);
  one = nullptr;
  EXPECT_TRUE(pool_.HasRoom());
  pool_.DropIdle();
  EXPECT_EQ(budget_->used(), 8);
}

TEST_F(BufferPoolTest, ABufferCountsUntilItIsFreedEvenWithoutItsPool) {
  std::shared_ptr<AlignedBuffer> left;
  {
    BufferPool brief(2, 1, budget_);
    left = brief.Acquire();
    brief.Acquire();
  }
  EXPECT_GE(budget_->used(), 8);
  left = nullptr;
  EXPECT_EQ(budget_->used(), 0);
}

}  // namespace
}  // namespace cairn::optim
