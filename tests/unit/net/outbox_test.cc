#include "common/net/wire/outbox.h"

#include <vector>

#include "gmock/gmock.h"
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

TEST(Outbox, RequestsOfAStalledReaderAreNotReadUntilItContinues) {
  Outbox<int> outbox;
  size_t asked = 0;
  while (!outbox.Backpressured()) {
    ++asked;
    outbox.Push(0);  // the answer to each request, which the reader does not take
  }
  EXPECT_EQ(asked, Outbox<int>::kMaxBeforeBackpressure + 1);
  EXPECT_FALSE(outbox.ShouldResume());
  outbox.Pop();
  EXPECT_TRUE(outbox.ShouldResume());
  EXPECT_FALSE(outbox.ShouldResume()) << "once";
}

std::vector<int> Drained(Outbox<int>& outbox) {
  std::vector<int> messages;
  for (; !outbox.empty(); outbox.Pop()) messages.push_back(outbox.front());
  return messages;
}

TEST(Outbox, TheLowestRankGoesFirstButNotBeforeTheMessageBeingWritten) {
  Outbox<int> outbox;
  for (int rank : {70, 90, 80, 10, 80, 20}) outbox.Push(rank, rank);
  EXPECT_THAT(Drained(outbox), testing::ElementsAre(70, 10, 20, 80, 80, 90));
}

TEST(Outbox, PushFirstGoesBeforeAllWaitingMessages) {
  Outbox<int> outbox;
  EXPECT_TRUE(outbox.PushFirst(1));
  outbox.Push(2);
  outbox.Push(20, 20);
  EXPECT_FALSE(outbox.PushFirst(3));
  outbox.Push(10, 10);
  EXPECT_THAT(Drained(outbox), testing::ElementsAre(1, 3, 2, 10, 20));
}

TEST(Outbox, AFrontThatIsNotStartedCanBeOvertaken) {
  Outbox<int> outbox;
  outbox.Push(10, 10);
  outbox.Push(20, 20);
  outbox.PushFront(1);
  EXPECT_THAT(Drained(outbox), testing::ElementsAre(1, 10, 20));
}

TEST(Outbox, MessagesOfEqualRankKeepTheirOrder) {
  Outbox<int> outbox;
  outbox.Push(0);
  for (int message : {1, 2, 3}) outbox.Push(message, 5);
  EXPECT_THAT(Drained(outbox), testing::ElementsAre(0, 1, 2, 3));
}

TEST(Outbox, AMessageWithoutARankNeitherOvertakesNorIsOvertaken) {
  Outbox<int> outbox;
  outbox.Push(0);
  outbox.Push(90, 90);
  outbox.Push(50, 50);
  outbox.Push(1);
  outbox.Push(30, 30);
  outbox.Push(10, 10);
  EXPECT_THAT(Drained(outbox), testing::ElementsAre(0, 50, 90, 1, 10, 30));
}

TEST(Outbox, DropRestKeepsTheMessageBeingWritten) {
  Outbox<int> outbox;
  for (int message : {1, 2, 3}) outbox.Push(message);
  outbox.DropRest();
  EXPECT_EQ(outbox.size(), 1u);
  EXPECT_EQ(outbox.front(), 1);
}

}  // namespace
}  // namespace cairn::net
