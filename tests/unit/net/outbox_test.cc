#include "common/net/outbox.h"

#include "gtest/gtest.h"

namespace cairn::net {
namespace {

TEST(Outbox, OneMessageIsWrittenAtATime) {
  Outbox<int> outbox;
  EXPECT_TRUE(outbox.Push(1));
  EXPECT_FALSE(outbox.Push(2));
  EXPECT_EQ(outbox.front(), 1);
  EXPECT_TRUE(outbox.Pop());
  EXPECT_EQ(outbox.front(), 2);
  EXPECT_FALSE(outbox.Pop());
  EXPECT_TRUE(outbox.Push(3));
}

TEST(Outbox, AReaderThatStandsStillIsAskedNothingMoreUntilItGoesOn) {
  Outbox<int> outbox;
  size_t asked = 0;
  while (!outbox.Rests()) {
    ++asked;
    outbox.Push(0);  // each request is answered, and no answer is taken
  }
  EXPECT_EQ(asked, Outbox<int>::kMostBeforeRest + 1);
  EXPECT_FALSE(outbox.Wakes());
  outbox.Pop();
  EXPECT_TRUE(outbox.Wakes());
  EXPECT_FALSE(outbox.Wakes()) << "once";
}

TEST(Outbox, AnEndLeavesWhatIsBeingWritten) {
  Outbox<int> outbox;
  for (int message : {1, 2, 3}) outbox.Push(message);
  outbox.DropRest();
  EXPECT_EQ(outbox.size(), 1u);
  EXPECT_EQ(outbox.front(), 1);
}

}  // namespace
}  // namespace cairn::net
