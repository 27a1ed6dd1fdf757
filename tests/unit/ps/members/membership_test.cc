#include "ps/members/membership.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

class MembershipTest : public testing::Test {
 protected:
  std::string Missing(int but) {
    std::string missing;
    const bool left = members_.AllOthersLeft(but, &missing);
    EXPECT_EQ(left, missing.empty());
    return missing;
  }
  Membership members_{{"worker/0", "worker/1", "worker/2"}};
};

TEST_F(MembershipTest, EachJoinIsALaterIncarnation) {
  EXPECT_EQ(members_.Join(1, 0, At(0)), 1u);
  EXPECT_EQ(members_.Join(1, 0, At(0)), 2u);
  EXPECT_EQ(members_.Join(1, 9, At(0)), 9u);
  EXPECT_EQ(members_.Join(1, 8, At(0)), 0u) << "older than the known incarnation";
  EXPECT_EQ(members_.Join(0, 0, At(0)), 1u) << "workers are independent";
}

v1::Process ProcessOf(uint64_t id) {
  v1::Process process;
  process.set_id(id);
  return process;
}

constexpr Duration kSilence = std::chrono::seconds(5);
constexpr auto kFree = Membership::Availability::kFree, kUnclear = Membership::Availability::kUnclear,
               kTaken = Membership::Availability::kTaken;

TEST_F(MembershipTest, AnUnusedPlaceIsFree) {
  EXPECT_EQ(members_.CheckAvailability(1, 7, At(0), kSilence), kFree);
  members_.Join(1, 0, At(0), ProcessOf(6));
  members_.Leave(1, 1);
  EXPECT_EQ(members_.CheckAvailability(1, 7, At(1), kSilence), kFree) << "it has left";
  members_.Join(1, 0, At(2), ProcessOf(6));
  members_.ExpireOlderThan(At(3));
  EXPECT_EQ(members_.CheckAvailability(1, 7, At(3), kSilence), kFree) << "its lease has expired";
}

TEST_F(MembershipTest, AProcessMayRejoinAsTheSameWorker) {
  members_.Join(1, 0, At(0), ProcessOf(6));
  EXPECT_EQ(members_.CheckAvailability(1, 6, At(0), kSilence), kFree);
}

TEST_F(MembershipTest, ALiveProcessIsNotReplaced) {
  members_.Join(1, 0, At(0), ProcessOf(6));
  members_.Heartbeat(1, 1, 3, At(1));
  EXPECT_EQ(members_.CheckAvailability(1, 7, At(2), kSilence), kUnclear) << "it may have died since";
  EXPECT_EQ(members_.CheckAvailability(1, 7, At(3), kSilence), kUnclear);
  members_.Heartbeat(1, 1, 4, At(4));
  EXPECT_EQ(members_.CheckAvailability(1, 7, At(5), kSilence), kTaken);
  EXPECT_EQ(members_.CheckAvailability(1, 8, At(6), kSilence), kUnclear) << "the next question starts over";
}

TEST_F(MembershipTest, ASilentProcessIsReplaced) {
  members_.Join(1, 0, At(0), ProcessOf(6));
  EXPECT_EQ(members_.CheckAvailability(1, 7, At(2), kSilence), kUnclear);
  EXPECT_EQ(members_.CheckAvailability(1, 7, At(6), kSilence), kUnclear);
  EXPECT_EQ(members_.CheckAvailability(1, 7, At(7), kSilence), kFree);
}

TEST_F(MembershipTest, AProcessWithABrokenStreamIsReplacedAtOnceUnlessAHeartbeatArrives) {
  members_.Join(1, 0, At(0), ProcessOf(6));
  members_.StreamBroke(1, 1);
  EXPECT_EQ(members_.CheckAvailability(1, 7, At(1), kSilence), kFree);
  members_.Heartbeat(1, 1, 3, At(2));
  EXPECT_EQ(members_.CheckAvailability(1, 7, At(3), kSilence), kUnclear);
  members_.StreamBroke(1, 0);
  EXPECT_EQ(members_.CheckAvailability(1, 7, At(3), kSilence), kUnclear) << "that was an earlier incarnation";
}

TEST_F(MembershipTest, OnlyTheNewestIncarnationKeepsTheLease) {
  members_.Join(1, 0, At(0));
  members_.Join(1, 0, At(1));
  EXPECT_FALSE(members_.Heartbeat(1, 1, 0, At(2)));
  EXPECT_TRUE(members_.Heartbeat(1, 2, 0, At(2)));
  EXPECT_FALSE(members_.Heartbeat(2, 1, 0, At(2))) << "never joined";
}

TEST_F(MembershipTest, AHeartbeatFromBeforeAPauseOfTheServerDoesNotShortenTheLease) {
  members_.Join(1, 0, At(0));
  members_.HearAll(At(20));  // the server has been paused
  EXPECT_TRUE(members_.Heartbeat(1, 1, 3, At(1)));
  EXPECT_TRUE(members_.ExpireOlderThan(At(10)).empty());
}

TEST_F(MembershipTest, ALeaseExpiresOnceAndForGood) {
  members_.Join(0, 0, At(0));
  members_.Join(1, 0, At(0));
  members_.Heartbeat(1, 1, 5, At(10));
  const auto expired = members_.ExpireOlderThan(At(10));
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].worker, 0);
  EXPECT_EQ(expired[0].incarnation, 1u);
  EXPECT_TRUE(members_.ExpireOlderThan(At(10)).empty());
  EXPECT_FALSE(members_.Heartbeat(0, 1, 0, At(11))) << "too late";
  EXPECT_EQ(members_.Join(0, 0, At(12)), 2u);
  EXPECT_TRUE(members_.Heartbeat(0, 2, 0, At(13)));
}

TEST_F(MembershipTest, AWorkerLeavesOnceAndOnlyAsItsCurrentIncarnation) {
  members_.Join(1, 0, At(0));
  EXPECT_FALSE(members_.Leave(1, 7));
  EXPECT_TRUE(members_.Leave(1, 1));
  EXPECT_FALSE(members_.Leave(1, 1));
  EXPECT_FALSE(members_.Heartbeat(1, 1, 0, At(1)));
}

TEST_F(MembershipTest, WorkersThatHaveNotLeftAreNamedWithTheirStep) {
  EXPECT_EQ(Missing(0), "worker/1 (never joined), worker/2 (never joined)");
  members_.Join(1, 0, At(0));
  members_.Join(2, 0, At(0));
  members_.Heartbeat(1, 1, 312, At(1));
  members_.Leave(2, 1);
  EXPECT_EQ(Missing(0), "worker/1 (step 312)");
  members_.ExpireOlderThan(At(100));
  EXPECT_EQ(Missing(0), "") << "expired workers count as left";
}

TEST_F(MembershipTest, AWorkerThatTheJobLacksHasAName) {
  EXPECT_EQ(members_.NameOf(7), "an unknown worker 7");
}

TEST_F(MembershipTest, AbsentWorkersExpireOnRequestAndMayStillJoin) {
  members_.Join(1, 0, At(0));
  std::vector<int> absent;
  for (const auto& gone : members_.ExpireAbsent()) absent.push_back(gone.worker);
  EXPECT_THAT(absent, testing::ElementsAre(0, 2));
  EXPECT_TRUE(members_.ExpireAbsent().empty()) << "once";
  EXPECT_EQ(Missing(0), "worker/1 (step 0)");
  EXPECT_EQ(members_.Join(2, 0, At(1)), 1u);
  EXPECT_TRUE(members_.Heartbeat(2, 1, 0, At(2)));
}

TEST(Membership, DrawsIncarnationsAboveThoseOfTheGenerationsBefore) {
  Membership members({"worker/0"}, 100);
  EXPECT_EQ(members.Join(0, 0, TimePoint()), 101u);
  EXPECT_EQ(members.Join(0, 0, TimePoint()), 102u);
}

TEST(Membership, AnElasticJobHasANumberForEachName) {
  Membership members({"worker/0"}, 0, /*elastic=*/true);
  EXPECT_EQ(members.NumberOf("worker/0", 3), 0);
  EXPECT_EQ(members.NumberOf("worker/9", 3), 1);
  EXPECT_EQ(members.NumberOf("worker/4", 3), 2);
  EXPECT_EQ(members.NumberOf("worker/9", 3), 1);
  EXPECT_EQ(members.NumberOf("worker/5", 3), -1);
  EXPECT_EQ(members.NameOf(1), "worker/9");
}

TEST(Membership, AnElasticJobDoesNotWaitForWorkersThatNeverJoined) {
  Membership members({"worker/0", "worker/1", "worker/2"}, 0, /*elastic=*/true);
  std::string missing;
  EXPECT_TRUE(members.AllOthersLeft(0, &missing));
  members.Join(2, 0, TimePoint());
  EXPECT_FALSE(members.AllOthersLeft(0, &missing));
  EXPECT_EQ(missing, "worker/2 (step 0)");
}

TEST(Membership, AnAbsentChiefKeepsItsPlace) {
  Membership members({"worker/0"}, 0, /*elastic=*/true);
  members.Join(1, 0, TimePoint());
  EXPECT_EQ(members.TakenExcept(2), 2) << "worker/1 and the chief";
  EXPECT_EQ(members.TakenExcept(1), 1);
  EXPECT_EQ(members.TakenExcept(0), 1);
}

}  // namespace
}  // namespace cairn::ps
