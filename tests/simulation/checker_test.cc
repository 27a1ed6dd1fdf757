// That the checker finds what is broken: each history has one fault.
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

// Two workers, each of which has pushed once to one server; worker w the gradient 2 + 4 w.
class CheckerTest : public testing::Test {
 protected:
  explicit CheckerTest(const Rules& rules = {.servers = 1, .workers = 2}) : checker_(rules) {
    for (int w : {0, 1}) checker_.Joined(w, 1, 0);
    checker_.EventEnded(0);
    for (int w : {0, 1})
      arrivals_[w] = checker_.Arrived(0, From(Key(w, 1)), 2.0f + 4.0f * static_cast<float>(w));
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

TEST_F(CheckerTest, AnHistoryWithoutFaultIsLeftAlone) {
  AcceptBoth();
  End(1, -4, 2);
  EXPECT_THAT(checker_.violations(), IsEmpty());
}

TEST_F(CheckerTest, ARoundWithoutALiveWorker) {
  checker_.Answered(arrivals_[0], Accepted(1), -2);
  checker_.EventEnded(1);
  Found("round 1 closes without worker 1, who lives");
}

TEST_F(CheckerTest, ARoundWithADeadWorker) {
  checker_.Left(1);
  checker_.EventEnded(0);
  AcceptBoth();
  Found("push 1.1.1 is in round 1 after its worker's death");
}

TEST_F(CheckerTest, AMeanThatIsNone) {
  AcceptBoth(-6);
  Found("version 1 is -6, the mean makes it -4");
}

TEST_F(CheckerTest, AVersionThatIsSkipped) {
  checker_.EventEnded(2);
  Found("ps/0 jumps from version 0 to 2");
}

TEST_F(CheckerTest, AGradientOfAnotherVersion) {
  const int64_t arrival = checker_.Arrived(0, From(Key(0, 2), 0), 1);
  checker_.Answered(arrival, Accepted(2), std::nullopt);
  Found("from version 0 is in the update to 2");
}

TEST_F(CheckerTest, APushThatIsAnsweredTwiceOrNever) {
  AcceptBoth();
  checker_.Answered(arrivals_[0], Accepted(1), -4);
  Found("is answered twice");
  Checker other({.servers = 1, .workers = 1});
  other.Arrived(0, From(Key(0, 1)), 1);
  other.Ended({.versions = {0}, .values = {0}, .counters = {}});
  EXPECT_THAT(other.violations(), Contains(HasSubstr("is never answered")));
}

TEST_F(CheckerTest, AMemberThatIsRejected) {
  checker_.Answered(arrivals_[0], {.outcome = v1::OUTCOME_REJECTED, .values = {}}, std::nullopt);
  Found("is rejected, though its worker is a member");
}

TEST_F(CheckerTest, CountersThatDoNotAddUp) {
  AcceptBoth();
  End(1, -4, 1);
  Found("2 pushes came to ps/0, and it counts 1");
}

class TwoServersTest : public CheckerTest {
 protected:
  TwoServersTest() : CheckerTest({.servers = 2, .workers = 2}) {}
};

TEST_F(TwoServersTest, APushThatCountsOnOneAlone) {
  AcceptBoth();
  Checker::Final final = {.versions = {1, 0}, .values = {-4, 0}, .counters = {}};
  final.counters.set_accepted(2);
  checker_.Ended(final);
  Found("push 0.1.1 counts on one server, and not on ps/1");
  Found("ps/1 ends at version 0, ps/0 at 1");
}

TEST_F(TwoServersTest, AVersionThatDiffersBetweenThem) {
  AcceptBoth();
  checker_.Read(1, 1, -5);
  Found("version 1 is -5 on ps/1 and was -4");
}

class BoundTest : public CheckerTest {
 protected:
  BoundTest() : CheckerTest({.mode = v1::MODE_SSP, .servers = 1, .workers = 2, .max_staleness = 0}) {}
};

TEST_F(BoundTest, AWorkerThatGoesOnTooFarAhead) {
  checker_.Answered(arrivals_[0], Accepted(1), -2);
  checker_.EventEnded(1);
  Found("push 0.1.1: its worker goes on at clock 1, and worker 1 is at 0");
}

TEST_F(BoundTest, BothGoOnTogether) {
  for (int64_t arrival : arrivals_) checker_.Answered(arrival, Accepted(2), -8);
  checker_.EventEnded(2);
  End(2, -8, 2);
  EXPECT_THAT(checker_.violations(), IsEmpty());
}

}  // namespace
}  // namespace cairn::simulation
