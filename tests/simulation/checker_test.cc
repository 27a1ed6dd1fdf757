// The checker finds violations: each history has one fault.
#include "tests/simulation/checker.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::simulation {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

ps::PushKey Key(int worker, int64_t step, uint64_t incarnation = 1) {
  return {.worker = worker, .incarnation = incarnation, .step = step};
}
ps::Gradient From(const ps::PushKey& key, int64_t base = 0) {
  return {.key = key, .base_version = base, .examples = 1};
}
ps::PushResult Accepted(int64_t version) {
  return {.outcome = v1::OUTCOME_ACCEPTED, .version = version, .values = {}};
}

// Each of two workers has pushed once to one server; worker w has pushed the gradient 2 + 4 w.
class CheckerTest : public testing::Test {
 protected:
  explicit CheckerTest(const Rules& rules = {.servers = 1, .workers = 2}) : checker_(rules) {
    for (int w : {0, 1}) checker_.Joined(w, 1, 0);
    checker_.EventEnded(0);
    for (int w : {0, 1}) {
      ps::Gradient gradient = From(Key(w, 1));
      gradient.position = w;
      arrivals_[w] = checker_.Arrived(0, gradient, 2.0f + 4.0f * static_cast<float>(w));
    }
    checker_.EventEnded(0);
  }
  void AcceptBoth(float value = -4) {
    for (int64_t arrival : arrivals_) checker_.Answered(arrival, Accepted(1), value);
    checker_.EventEnded(1);
  }
  void End(int64_t version, float value, int64_t accepted) {
    Checker::Final final = {.versions = {version}, .values = {value}, .counters = {}};
    final.counters.set_accepted(accepted);
    checker_.Ended(final);
  }
  void Found(const std::string& what) { EXPECT_THAT(checker_.violations(), Contains(HasSubstr(what))); }

  Checker checker_;
  int64_t arrivals_[2] = {};
};

TEST_F(CheckerTest, AHistoryWithoutAFaultPasses) {
  AcceptBoth();
  End(1, -4, 2);
  EXPECT_THAT(checker_.violations(), IsEmpty());
}

TEST_F(CheckerTest, FindsARoundWithoutALiveWorker) {
  checker_.Answered(arrivals_[0], Accepted(1), -2);
  checker_.EventEnded(1);
  Found("round 1 closes without worker 1, who lives");
}

TEST_F(CheckerTest, FindsARoundWithADeadWorker) {
  checker_.Left(1);
  checker_.EventEnded(0);
  AcceptBoth();
  Found("push 1.1.1 is in round 1 after its worker's death");
}

TEST_F(CheckerTest, FindsAWrongMean) {
  AcceptBoth(-6);
  Found("version 1 is -6, the mean makes it -4");
}

TEST_F(CheckerTest, FindsASkippedVersion) {
  checker_.EventEnded(2);
  Found("ps/0 jumps from version 0 to 2");
}

TEST_F(CheckerTest, FindsAGradientOfAnotherVersion) {
  const int64_t arrival = checker_.Arrived(0, From(Key(0, 2), 0), 1);
  checker_.Answered(arrival, Accepted(2), std::nullopt);
  Found("from version 0 is in the update to 2");
}

TEST_F(CheckerTest, FindsAPushThatIsAnsweredTwiceOrNever) {
  AcceptBoth();
  checker_.Answered(arrivals_[0], Accepted(1), -4);
  Found("is answered twice");
  Checker other({.servers = 1, .workers = 1});
  other.Arrived(0, From(Key(0, 1)), 1);
  other.Ended({.versions = {0}, .values = {0}, .counters = {}});
  EXPECT_THAT(other.violations(), Contains(HasSubstr("is never answered")));
}

TEST_F(CheckerTest, FindsARejectedMember) {
  checker_.Answered(arrivals_[0], {.outcome = v1::OUTCOME_REJECTED, .values = {}}, std::nullopt);
  Found("is rejected, though its worker is a member");
}

TEST_F(CheckerTest, FindsCountersThatDoNotAddUp) {
  AcceptBoth();
  End(1, -4, 1);
  Found("2 pushes came to ps/0, and it counts 1");
}

class TwoServersTest : public CheckerTest {
 protected:
  TwoServersTest() : CheckerTest({.servers = 2, .workers = 2}) {}
};

TEST_F(TwoServersTest, FindsAPushThatCountsOnOnlyOneServer) {
  AcceptBoth();
  Checker::Final final = {.versions = {1, 0}, .values = {-4, 0}, .counters = {}};
  final.counters.set_accepted(2);
  checker_.Ended(final);
  Found("push 0.1.1 counts on one server, and not on ps/1");
  Found("ps/1 ends at version 0, ps/0 at 1");
}

TEST_F(TwoServersTest, FindsAVersionThatDiffersBetweenServers) {
  AcceptBoth();
  checker_.Read(1, 1, -5);
  Found("version 1 is -5 on ps/1 and was -4");
}

class RowsTest : public CheckerTest {
 protected:
  RowsTest() : CheckerTest({.servers = 1, .workers = 2, .rows = true}) {}
  void EndWith(const std::vector<float>& rows) {
    Checker::Final final = {.versions = {1}, .values = {-4}, .counters = {}, .rows = {rows}};
    final.counters.set_accepted(2);
    checker_.Ended(final);
  }
};

// The pushes with the gradients 2 and 6 contain row 2 and row 3.
TEST_F(RowsTest, RowsThatAreTheMeanPass) {
  AcceptBoth();
  EndWith({-4, 0, -1, -3});
  EXPECT_THAT(checker_.violations(), IsEmpty());
}

TEST_F(RowsTest, FindsAGradientThatARowLacks) {
  AcceptBoth();
  EndWith({-4, 0, -1, 0});
  Found("row 3 of version 1 is 0, the mean makes it -3");
}

TEST_F(RowsTest, FindsARowThatDiffersFromTheVariable) {
  AcceptBoth();
  EndWith({-8, 0, -1, -3});
  Found("row 0 of ps/0 ends with -8, the variable with -4");
}

TEST_F(RowsTest, FindsRowsThatDifferBetweenReads) {
  checker_.ReadRows(0, 0, {0, 0, 0, 1});
  Found("the rows of version 0 are 0, 0, 0, 1 on ps/0 and were 0, 0, 0, 0");
}

class BoundTest : public CheckerTest {
 protected:
  BoundTest() : CheckerTest({.mode = v1::MODE_SSP, .servers = 1, .workers = 2, .max_staleness = 0}) {}
};

TEST_F(BoundTest, FindsAWorkerTooFarAhead) {
  checker_.Answered(arrivals_[0], Accepted(1), -2);
  checker_.EventEnded(1);
  Found("push 0.1.1: its worker continues at clock 1, and worker 1 is at 0");
}

TEST_F(BoundTest, WorkersThatContinueTogetherPass) {
  for (int64_t arrival : arrivals_) checker_.Answered(arrival, Accepted(2), -8);
  checker_.EventEnded(2);
  End(2, -8, 2);
  EXPECT_THAT(checker_.violations(), IsEmpty());
}

// --- Rollback ---

v1::Progress At(int64_t version, int64_t accepted, int64_t next_example = 0) {
  v1::Progress progress;
  progress.set_version(version);
  progress.mutable_counters()->set_accepted(accepted);
  progress.mutable_counters()->set_examples(next_example);
  progress.mutable_data()->set_next(next_example);
  return progress;
}

TEST_F(CheckerTest, ASnapshotAndARollbackToItPass) {
  AcceptBoth();
  checker_.Snapshot(At(1, 2), {-4});
  checker_.ServerLost();
  checker_.RollBack({.values = {-4}, .progress = At(1, 2)});
  EXPECT_THAT(checker_.violations(), IsEmpty());
}

TEST_F(CheckerTest, FindsARollbackWithoutALoss) {
  AcceptBoth();
  checker_.Snapshot(At(1, 2), {-4});
  checker_.RollBack({.values = {-4}, .progress = At(1, 2)});
  Found("all are rolled back to version 1, and no server has lost anything");
}

TEST_F(CheckerTest, FindsARollbackToValuesOfNoSnapshot) {
  AcceptBoth();
  checker_.Snapshot(At(1, 2), {-4});
  checker_.ServerLost();
  checker_.RollBack({.values = {-4}, .progress = At(3, 2)});
  checker_.RollBack({.values = {-3}, .progress = At(1, 2)});
  Found("all are rolled back to version 3, of which there is no snapshot");
  Found("all are rolled back to other values than the snapshot of version 1 has");
}

TEST_F(CheckerTest, FindsASnapshotThatCountsTooFewOrTooMany) {
  AcceptBoth();
  checker_.Snapshot(At(1, 1), {-4});
  checker_.Snapshot(At(1, 3), {-4});
  Found("the snapshot of version 1 counts 1 accepted, and 2 were");
  Found("the snapshot of version 1 counts 3 accepted, and 2 were");
}

TEST_F(CheckerTest, FindsASnapshotOfOtherValues) {
  AcceptBoth();
  checker_.Snapshot(At(1, 2), {-5});
  Found("version 1 is -5 on ps/0 and was -4");
}

TEST_F(CheckerTest, FindsAnAnswerAfterItsServersDeath) {
  checker_.Lost(arrivals_[0]);
  checker_.Answered(arrivals_[0], Accepted(1), -2);
  Found("is answered twice");
}

TEST_F(CheckerTest, FindsAGradientOfAnEarlierHistory) {
  checker_.ComputedIn(Key(0, 1), 0, 1);
  Found("push 0.1.1 was computed in generation 0, and is taken in 1");
}

TEST(SecondHistory, BeginsAtTheSnapshotsValuesAndCounts) {
  Checker checker({.servers = 1, .workers = 1}, {.values = {-4}, .progress = At(7, 20)});
  checker.Joined(0, 1, 0);
  checker.EventEnded(7);
  const int64_t arrival = checker.Arrived(0, From(Key(0, 1), 7), 2);
  checker.Answered(arrival, Accepted(8), -6);
  checker.EventEnded(8);
  Checker::Final final = {.versions = {8}, .values = {-6}, .counters = {}};
  final.counters.set_accepted(21);
  checker.Ended(final);
  EXPECT_THAT(checker.violations(), IsEmpty());
}

TEST(SecondHistory, FindsValuesThatAreNotTheSnapshots) {
  Checker checker({.servers = 2, .workers = 1}, {.values = {-4, -4}, .progress = At(7, 20)});
  checker.Read(1, 7, -5);
  EXPECT_THAT(checker.violations(), Contains(HasSubstr("version 7 is -5 on ps/1 and was -4")));
}

// --- Dynamic sharding: four examples, the first of which are in the two workers' pushes ---

class ExamplesTest : public CheckerTest {
 protected:
  ExamplesTest() : CheckerTest({.servers = 1, .workers = 2, .num_examples = 4, .epochs = 1}) {}
};

TEST_F(ExamplesTest, ExamplesUsedBeforeASnapshotPass) {
  AcceptBoth();
  checker_.Snapshot(At(1, 2, 2), {-4});
  EXPECT_THAT(checker_.violations(), IsEmpty());
}

TEST_F(ExamplesTest, FindsExamplesThatAreUsedTwice) {
  AcceptBoth();
  ps::Gradient again = From(Key(0, 2), 1);
  again.position = 1;
  checker_.Answered(checker_.Arrived(0, again, 1), Accepted(2), std::nullopt);
  Found("push 0.1.2 is accepted with examples 1 to 2, some of which are in an update before");
}

TEST_F(ExamplesTest, FindsExamplesThatASnapshotForgets) {
  AcceptBoth();
  checker_.Snapshot(At(1, 2, 1), {-4});
  Found("the snapshot of version 1 lacks examples 1 to 2 of push 1.1.1");
}

TEST_F(ExamplesTest, FindsExamplesThatASnapshotTakesForUsed) {
  AcceptBoth();
  checker_.Snapshot(At(1, 2, 3), {-4});
  Found("the snapshot of version 1 has 3 examples behind it, and 2 were used");
}

TEST_F(ExamplesTest, FindsExamplesThatAreLeftAtTheEnd) {
  AcceptBoth();
  const ps::PushResult finished = {.outcome = v1::OUTCOME_FINISHED, .version = 1, .values = {}};
  checker_.Answered(checker_.Arrived(0, From(Key(0, 2), 1), 1), finished, std::nullopt);
  Found("push 0.1.2 on ps/0 is answered with the end at version 1");
}

TEST_F(ExamplesTest, FindsExamplesThatAreMiscounted) {
  AcceptBoth();
  Checker::Final final = {.versions = {1}, .values = {-4}, .counters = {}};
  final.counters.set_accepted(2);
  final.counters.set_examples(3);
  checker_.Ended(final);
  Found("2 examples are used, and ps/0 counts 3");
}

// --- Promoted backups ---

class ReplicationTest : public CheckerTest {
 protected:
  ReplicationTest() : CheckerTest({.servers = 2, .workers = 2, .copies = true}) {
    for (int w : {0, 1})
      second_[w] = checker_.Arrived(1, From(Key(w, 1)), 2.0f + 4.0f * static_cast<float>(w));
  }
  void EndAt(float value, int64_t accepted) {
    Checker::Final final = {.versions = {1, 1}, .values = {value, value}, .counters = {}};
    final.counters.set_accepted(accepted);
    checker_.Ended(final);
  }

  int64_t second_[2];
};

TEST_F(ReplicationTest, AnAnswerLostWithItsServerIsNoFault) {
  for (int64_t arrival : arrivals_) checker_.Answered(arrival, Accepted(1), -4);
  checker_.Answered(second_[0], Accepted(1), -4);
  checker_.Lost(second_[1]);
  EndAt(-4, 2);
  EXPECT_THAT(checker_.violations(), IsEmpty());
}

TEST_F(ReplicationTest, FindsAVersionThatContradictsAnEarlierAnswer) {
  checker_.Read(0, 1, -4);
  checker_.Read(0, 1, -2);
  Found("version 1 is -2 on ps/0 and was -4");
}

TEST_F(ReplicationTest, FindsAForgottenPush) {
  for (int64_t arrival : arrivals_) checker_.Answered(arrival, Accepted(1), -4);
  for (int64_t arrival : second_) checker_.Answered(arrival, Accepted(1), -4);
  EndAt(-4, 1);
  Found("2 pushes are accepted, and ps/0 counts 1");
}

TEST_F(ReplicationTest, FindsAWrongMean) {
  for (int64_t arrival : arrivals_) checker_.Answered(arrival, Accepted(1), -6);
  for (int64_t arrival : second_) checker_.Answered(arrival, Accepted(1), -6);
  EndAt(-6, 2);
  Found("version 1 is -6, the mean makes it -4");
}

TEST(ExampleSet, ContainsTheExamplesThatWereAdded) {
  v1::DataPosition position;
  position.set_next(10);
  v1::DataPosition::Run& open = *position.add_open();
  open.set_begin(4);
  open.set_count(2);
  ExampleSet set(position);
  EXPECT_EQ(set.size(), 8);
  EXPECT_FALSE(set.Holds(3, 5));
  EXPECT_FALSE(set.Add(3, 5)) << "3 is there";
  EXPECT_TRUE(set.Add(5, 6));
  EXPECT_TRUE(set.Holds(0, 10));
  EXPECT_FALSE(set.Add(9, 12)) << "9 is there";
  EXPECT_EQ(set.size(), 12);
  EXPECT_TRUE(set.Add(20, 20)) << "none at all";
  EXPECT_FALSE(set.Holds(12, 13));
}

}  // namespace
}  // namespace cairn::simulation
