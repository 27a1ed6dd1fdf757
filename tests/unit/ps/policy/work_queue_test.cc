#include "ps/policy/work_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn::ps {
namespace {

using Runs = std::vector<WorkPosition::Run>;

// "0:4+2 0:6+2": in epoch 0 the positions 4 and 5, and ahead 6 and 7.
std::string WorkItemsOf(const WorkQueue& queue, int worker) {
  return absl::StrJoin(queue.WorkItemsOf(worker), " ", [](std::string* out, const WorkItem& work_item) {
    absl::StrAppend(out, work_item.epoch, ":", work_item.first, "+", work_item.count);
  });
}

TEST(WorkQueue, GivesACurrentItemAndOneAhead) {
  WorkQueue queue({.num_examples = 10, .batch_size = 2, .epochs = 1});
  EXPECT_TRUE(queue.Give(0));
  EXPECT_TRUE(queue.Give(1));
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:0+2 0:2+2");
  EXPECT_EQ(WorkItemsOf(queue, 1), "0:4+2 0:6+2");
  queue.Done(0);
  EXPECT_TRUE(queue.Give(0));
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:2+2 0:8+2");
}

TEST(WorkQueue, GivesSeveralItemsAhead) {
  WorkQueue queue({.num_examples = 10, .batch_size = 1, .epochs = 1, .items_ahead = 3});
  EXPECT_TRUE(queue.Give(0));
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:0+1 0:1+1 0:2+1 0:3+1");
  EXPECT_TRUE(queue.Give(1));
  queue.Done(0);
  EXPECT_TRUE(queue.Give(0));
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:1+1 0:2+1 0:3+1 0:8+1");
  queue.Return(0);
  queue.Done(1);
  EXPECT_TRUE(queue.Give(1));
  EXPECT_EQ(WorkItemsOf(queue, 1), "0:5+1 0:6+1 0:7+1 0:1+1");
  EXPECT_EQ(queue.position().next, 5) << "the example after the last one that is done";
  EXPECT_EQ(queue.position().num_open(), 3);
}

TEST(WorkQueue, TakesTheLastItemOfTheLongestListAhead) {
  WorkQueue queue({.num_examples = 5, .batch_size = 1, .epochs = 1, .items_ahead = 2});
  EXPECT_TRUE(queue.Give(0));
  EXPECT_TRUE(queue.Give(1));
  EXPECT_EQ(WorkItemsOf(queue, 1), "0:3+1 0:4+1");
  EXPECT_TRUE(queue.Give(2));
  EXPECT_EQ(WorkItemsOf(queue, 2), "0:2+1");
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:0+1 0:1+1");
}

TEST(WorkQueue, GivesTheItemsOfSeveralRoundsAhead) {
  WorkQueue queue({.num_examples = 7, .batch_size = 1, .epochs = 1, .items_ahead = 2});
  queue.GiveRound({0, 1});
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:0+1 0:2+1 0:4+1");
  EXPECT_EQ(WorkItemsOf(queue, 1), "0:1+1 0:3+1 0:5+1");
  queue.Done(0);
  queue.Done(1);
  queue.GiveRound({0, 1});
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:2+1 0:4+1 0:6+1");
  EXPECT_EQ(WorkItemsOf(queue, 1), "0:3+1 0:5+1");
}

TEST(WorkQueue, SavesAndLoadsTheItemsAhead) {
  const WorkQueue::Config config = {.num_examples = 10, .batch_size = 1, .epochs = 1, .items_ahead = 3};
  WorkQueue queue(config), loaded(config);
  queue.Give(0);
  v1::QueuedPolicyState state;
  queue.Save(state);
  ASSERT_TRUE(loaded.Load(state, 10).ok());
  EXPECT_EQ(WorkItemsOf(loaded, 0), WorkItemsOf(queue, 0));
  EXPECT_EQ(loaded.position(), queue.position());
}

TEST(WorkQueue, CutsTheLastItemOfAnEpoch) {
  WorkQueue queue({.num_examples = 5, .batch_size = 4, .epochs = 2});
  queue.Give(0);
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:0+4 0:4+1");
  queue.Done(0);
  queue.Give(0);
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:4+1 1:0+4");
}

TEST(WorkQueue, GivesReturnedItemsBeforeNewOnes) {
  WorkQueue queue({.num_examples = 100, .batch_size = 10, .epochs = 1});
  queue.Give(0);
  queue.Give(1);
  queue.Return(0);
  queue.Give(2);
  EXPECT_EQ(WorkItemsOf(queue, 2), "0:0+10 0:10+10");
  queue.Done(1);
  queue.Give(1);
  EXPECT_EQ(WorkItemsOf(queue, 1), "0:30+10 0:40+10");
}

TEST(WorkQueue, GivesAnIdleWorkerTheItemAheadOfABusyOne) {
  WorkQueue queue({.num_examples = 4, .batch_size = 2, .epochs = 1});
  queue.Give(0);
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:0+2 0:2+2");
  EXPECT_TRUE(queue.Give(1));
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:0+2");
  EXPECT_EQ(WorkItemsOf(queue, 1), "0:2+2");
  EXPECT_FALSE(queue.Give(2));
}

TEST(WorkQueue, IsExhaustedWhenTheLastItemIsDone) {
  WorkQueue queue({.num_examples = 4, .batch_size = 2, .epochs = 1});
  queue.Give(0);
  queue.Give(1);
  queue.Done(0);
  EXPECT_FALSE(queue.exhausted());
  queue.Return(1);
  EXPECT_FALSE(queue.exhausted());
  queue.Give(0);
  queue.Done(0);
  EXPECT_TRUE(queue.exhausted());
}

TEST(WorkQueue, WithoutEpochsNeverEnds) {
  WorkQueue queue({.num_examples = 1, .batch_size = 8});
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    ASSERT_TRUE(queue.Give(0));
    ASSERT_EQ(queue.WorkItemsOf(0).front(), (WorkItem{epoch, 0, 1}));
    queue.Done(0);
  }
}

TEST(WorkQueue, GivesARoundInWorkerOrder) {
  WorkQueue queue({.num_examples = 100, .batch_size = 10, .epochs = 1});
  queue.GiveRound({0, 1, 2});
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:0+10 0:30+10");
  EXPECT_EQ(WorkItemsOf(queue, 1), "0:10+10 0:40+10");
  EXPECT_EQ(WorkItemsOf(queue, 2), "0:20+10 0:50+10");
  for (int worker : {2, 0, 1}) queue.Done(worker);
  queue.GiveRound({0, 1, 2});
  EXPECT_EQ(WorkItemsOf(queue, 1), "0:40+10 0:70+10") << "the item that it had ahead";
}

TEST(WorkQueue, ARoundHasItemsOfOneEpoch) {
  WorkQueue queue({.num_examples = 5, .batch_size = 2, .epochs = 2});
  queue.GiveRound({0, 1});
  EXPECT_EQ(WorkItemsOf(queue, 1), "0:2+2") << "the round after it has one item";
  queue.Done(0);
  queue.Done(1);
  queue.GiveRound({0, 1});
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:4+1 1:0+2");
  EXPECT_EQ(WorkItemsOf(queue, 1), "0:5+0 1:2+2") << "an item without examples";
  queue.Done(0);
  queue.Done(1);
  queue.GiveRound({0, 1});
  EXPECT_EQ(WorkItemsOf(queue, 0), "1:0+2 1:4+1");
}

TEST(WorkQueue, AWorkerThatJoinsARoundGetsAnItemOfItsEpoch) {
  WorkQueue queue({.num_examples = 4, .batch_size = 2, .epochs = 2});
  queue.GiveRound({0, 1});
  queue.GiveRound({0, 1, 2});
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:0+2 1:0+2");
  EXPECT_EQ(WorkItemsOf(queue, 2), "0:4+0");
}

TEST(WorkQueue, ADeadWorkersItemsComeBeforeTheNextEpoch) {
  WorkQueue queue({.num_examples = 4, .batch_size = 2, .epochs = 2});
  queue.GiveRound({0, 1});
  queue.Return(1);
  queue.Done(0);
  queue.GiveRound({0});
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:2+2 1:0+2");
}

TEST(WorkQueue, ThePositionListsWhatIsNotDone) {
  WorkQueue queue({.num_examples = 10, .batch_size = 2, .epochs = 2});
  EXPECT_EQ(queue.position(), WorkPosition());
  queue.Give(0);
  queue.Give(1);
  EXPECT_EQ(queue.position(), WorkPosition()) << "nothing is done";
  queue.Done(1);
  EXPECT_EQ(queue.position().next, 6);
  EXPECT_EQ(queue.position().open, (Runs{{0, 2}, {2, 2}}));
  EXPECT_EQ(queue.position().num_open(), 4);
}

TEST(WorkQueue, ContinuesFromAPosition) {
  const WorkPosition position = {.next = 16, .open = {{2, 2}, {8, 2}}};
  WorkQueue queue({.num_examples = 10, .batch_size = 2, .epochs = 2}, position);
  EXPECT_EQ(queue.position(), position);
  queue.GiveRound({0, 1, 2});
  EXPECT_EQ(WorkItemsOf(queue, 0), "0:2+2 1:6+2");
  EXPECT_EQ(WorkItemsOf(queue, 1), "0:8+2 1:8+2");
  EXPECT_EQ(WorkItemsOf(queue, 2), "0:10+0");
}

TEST(WorkQueue, ContinuesWithAnotherBatchSize) {
  WorkQueue queue({.num_examples = 10, .batch_size = 3, .epochs = 1}, {.next = 10, .open = {{0, 4}, {8, 2}}});
  std::string given;
  while (queue.Give(0)) {
    const WorkItem work_item = queue.WorkItemsOf(0).front();
    absl::StrAppend(&given, work_item.first, "+", work_item.count, " ");
    queue.Done(0);
  }
  EXPECT_EQ(given, "0+3 3+1 8+2 ");
  EXPECT_TRUE(queue.exhausted());
}

}  // namespace
}  // namespace cairn::ps
