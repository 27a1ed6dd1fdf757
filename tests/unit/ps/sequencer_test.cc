#include "ps/sequencer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string ToText(const LogEntry& entry) {
  if (const auto* apply = std::get_if<Apply>(&entry.what)) {
    return absl::StrCat(
        entry.index, ": v", apply->version, " of ",
        absl::StrJoin(apply->contributors, " ", [](std::string* out, const Gradient& gradient) {
          absl::StrAppend(out, gradient.key.worker, ".", gradient.key.incarnation, ".", gradient.key.step);
        }));
  }
  if (const auto* refuse = std::get_if<Refuse>(&entry.what)) {
    return absl::StrCat(entry.index, ": refuse ", refuse->key.worker, ".", refuse->key.incarnation, ".",
                        refuse->key.step);
  }
  return absl::StrCat(entry.index, ": mark ", std::get<Mark>(entry.what).token);
}

class RecordingSink final : public LogSink {
 public:
  void Append(const LogEntry& entry) override { entries.push_back(ToText(entry)); }
  void Flush() override { flushed = entries.size(); }
  void End() override { ended = true; }
  std::vector<std::string> entries;
  size_t flushed = 0;
  bool ended = false;
};

Gradient Push(int worker, uint64_t incarnation, int64_t step, int64_t base_version = 0) {
  return {.key = {.worker = worker, .incarnation = incarnation, .step = step},
          .base_version = base_version,
          .examples = 1};
}

// Two workers of a synchronous job on two servers.
class SequencerTest : public testing::Test {
 protected:
  SequencerTest()
      : sequencer_(MakePolicy({.mode = "sync", .expected_workers = 2}).value(), /*num_servers=*/2) {
    EXPECT_TRUE(sequencer_.Subscribe(0, 1, sink_));
    sequencer_.Join(0, 1);
    sequencer_.Join(1, 1);
  }
  void StageOnBoth(const Gradient& gradient) {
    sequencer_.OnStaged(0, gradient);
    sequencer_.OnStaged(1, gradient);
  }
  std::vector<std::string>& log() { return sink_->entries; }

  Sequencer sequencer_;
  std::shared_ptr<RecordingSink> sink_ = std::make_shared<RecordingSink>();
};

TEST_F(SequencerTest, APushCountsWhenEveryServerHoldsIt) {
  StageOnBoth(Push(0, 1, 1));
  sequencer_.OnStaged(0, Push(1, 1, 1));
  EXPECT_THAT(log(), IsEmpty());
  sequencer_.OnStaged(1, Push(1, 1, 1));
  EXPECT_THAT(log(), ElementsAre("1: v1 of 0.1.1 1.1.1"));
  EXPECT_EQ(sink_->flushed, 1u);
  EXPECT_EQ(sequencer_.version(), 1);
}

TEST_F(SequencerTest, AServerThatReportsTwiceIsStillOneServer) {
  StageOnBoth(Push(0, 1, 1));
  sequencer_.OnStaged(0, Push(1, 1, 1));
  sequencer_.OnStaged(0, Push(1, 1, 1));
  EXPECT_THAT(log(), IsEmpty());
}

TEST_F(SequencerTest, AReportOfWhatIsDecidedIsForgotten) {
  StageOnBoth(Push(0, 1, 1));
  StageOnBoth(Push(1, 1, 1));
  sequencer_.OnStaged(1, Push(1, 1, 1));  // a follower that has found its way back
  EXPECT_EQ(log().size(), 1u);
  EXPECT_THAT(sequencer_.WaitingFor(), ElementsAre(0, 1));
}

TEST_F(SequencerTest, WhatALeavingWorkerHasOnSomeServersIsRefusedOnAll) {
  StageOnBoth(Push(0, 1, 1));
  sequencer_.OnStaged(1, Push(1, 1, 1));
  sequencer_.Leave(1, 1);
  EXPECT_THAT(log(), ElementsAre("1: refuse 1.1.1", "2: v1 of 0.1.1"));
  sequencer_.OnStaged(0, Push(1, 1, 1));  // the rest of it arrives after all
  EXPECT_EQ(log().back(), "3: refuse 1.1.1");
}

TEST_F(SequencerTest, ANewLifeRefusesWhatTheOldOneHas) {
  sequencer_.OnStaged(0, Push(1, 1, 1));
  sequencer_.Join(1, 2);
  EXPECT_THAT(log(), ElementsAre("1: refuse 1.1.1"));
  sequencer_.OnStaged(1, Push(1, 1, 1));
  EXPECT_EQ(log().back(), "2: refuse 1.1.1");
  sequencer_.Join(1, 1);  // overtaken
  StageOnBoth(Push(0, 1, 1));
  StageOnBoth(Push(1, 2, 1));
  EXPECT_EQ(log().back(), "3: v1 of 0.1.1 1.2.1");
}

TEST_F(SequencerTest, APushOfNoMemberIsRefused) {
  sequencer_.OnStaged(0, Push(5, 1, 1));
  EXPECT_THAT(log(), ElementsAre("1: refuse 5.1.1"));
}

TEST_F(SequencerTest, AMarkStandsBetweenTheRoundsThatItFollowsAndPrecedes) {
  StageOnBoth(Push(0, 1, 1));
  StageOnBoth(Push(1, 1, 1));
  sequencer_.WriteMark("here");
  StageOnBoth(Push(0, 1, 2, 1));
  StageOnBoth(Push(1, 1, 2, 1));
  EXPECT_THAT(log(), ElementsAre("1: v1 of 0.1.1 1.1.1", "2: mark here", "3: v2 of 0.1.2 1.1.2"));
}

TEST_F(SequencerTest, ASubscriberGetsTheLogFromWhereItStands) {
  for (const char* token : {"a", "b", "c"}) sequencer_.WriteMark(token);
  const auto follower = std::make_shared<RecordingSink>();
  ASSERT_TRUE(sequencer_.Subscribe(1, 2, follower));
  EXPECT_THAT(follower->entries, ElementsAre("2: mark b", "3: mark c"));
  EXPECT_EQ(follower->flushed, 2u);
  sequencer_.WriteMark("d");
  EXPECT_EQ(follower->entries.back(), "4: mark d");
}

TEST_F(SequencerTest, ANewSubscriptionReplacesTheOldOneWhoseEndChangesNothing) {
  const auto old_link = std::make_shared<RecordingSink>(), new_link = std::make_shared<RecordingSink>();
  ASSERT_TRUE(sequencer_.Subscribe(1, 1, old_link));
  ASSERT_TRUE(sequencer_.Subscribe(1, 1, new_link));
  sequencer_.Unsubscribe(1, old_link.get());
  EXPECT_THAT(sequencer_.UnreachedServers(), IsEmpty());
  sequencer_.WriteMark("a");
  EXPECT_THAT(old_link->entries, IsEmpty());
  EXPECT_THAT(new_link->entries, ElementsAre("1: mark a"));
  sequencer_.Unsubscribe(1, new_link.get());
  EXPECT_THAT(sequencer_.UnreachedServers(), ElementsAre(1));
}

TEST_F(SequencerTest, TheLogIsKeptUntilAllServersHaveExecutedIt) {
  for (const char* token : {"a", "b", "c"}) sequencer_.WriteMark(token);
  sequencer_.OnExecuted(0, 3);
  EXPECT_TRUE(sequencer_.Subscribe(1, 1, std::make_shared<RecordingSink>()));
  sequencer_.OnExecuted(1, 2);
  const auto late = std::make_shared<RecordingSink>();
  EXPECT_FALSE(sequencer_.Subscribe(1, 2, late)) << "forgotten";
  EXPECT_FALSE(sequencer_.Subscribe(1, 5, late)) << "not written yet";
  EXPECT_TRUE(sequencer_.Subscribe(1, 3, late));
  EXPECT_THAT(late->entries, ElementsAre("3: mark c"));
}

TEST_F(SequencerTest, AnEndedLogSendsItsSubscribersAway) {
  sequencer_.End();
  EXPECT_TRUE(sink_->ended);
  sequencer_.WriteMark("a");
  EXPECT_THAT(log(), IsEmpty());
  EXPECT_FALSE(sequencer_.Subscribe(1, 1, std::make_shared<RecordingSink>()));
}

}  // namespace
}  // namespace cairn::ps
