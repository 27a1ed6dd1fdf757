#include "client/training/training_loop.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/job_end.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/client/scripted_exchange.h"

namespace cairn::client {
namespace {

using testing::ElementsAre;

const absl::Status kLost = absl::AbortedError("ps/1 was restarted");
const absl::Status kPermanent = absl::InvalidArgumentError("a row has no target");

class TrainingLoopTest : public testing::Test {
 protected:
  // A job to version 2, unless a test sets another job.
  TrainingLoopTest() {
    job_.set_mode(v1::MODE_SYNC);
    steps_.final_version = 2;
  }

  TrainingLoop::Options Options() {
    return {.membership = membership_,
            .steps = steps_,
            .job = job_,
            .step_timeout = std::chrono::seconds(20),
            .on_joined = [this] { return script_.Call("on-joined"); },
            .before_end = [this] { return script_.Call("before-end"); },
            .on_recovery = [this](const absl::Status& failure) { reports_.emplace_back(failure.message()); }};
  }
  void MakeWorker() { loop_.emplace(Options()); }
  void MakeWorkerUpTo(int64_t last_position) {
    TrainingLoop::Options options = Options();
    options.last_position = last_position;
    loop_.emplace(options);
  }
  void MakeChief(bool snapshots = false) {
    TrainingLoop::Options options = Options();
    if (snapshots) {
      saver_.emplace(SnapshotSaver::Options{.every_updates = 1,
                                            .clock = clock_,
                                            .save = [](const TakenSnapshot&) { return absl::OkStatus(); },
                                            .report = nullptr});
    }
    options.chief.emplace(TrainingLoop::Chief{
        .control = control_, .source = source_, .snapshots = saver_.has_value() ? &*saver_ : nullptr});
    loop_.emplace(options);
  }
  // The steps of a worker that is a member; each makes an update.
  absl::Status Run() {
    return loop_->Run([this] {
      const absl::Status made = script_.Call("step");
      if (made.ok()) {
        ++steps_.at;
        loop_->Advance();
        loop_->AfterStep();
      }
      return made;
    });
  }
  // Becomes a member, and forgets the calls.
  void Join() {
    ASSERT_EQ(loop_->Join(), absl::OkStatus());
    script_.Calls();
  }

  v1::Job job_;
  Script script_;
  ScriptedMembership membership_{script_};
  ScriptedSteps steps_{script_};
  ScriptedControl control_{script_, steps_};
  FirstValues source_{std::vector<float>()};
  test::FakeClock clock_;
  std::optional<SnapshotSaver> saver_;
  std::vector<std::string> reports_;
  std::optional<TrainingLoop> loop_;
};

TEST_F(TrainingLoopTest, AWorkerStepsToTheEndLeavesAndWaits) {
  MakeWorker();
  EXPECT_EQ(loop_->Initialise(), absl::OkStatus());
  EXPECT_EQ(loop_->Join(), absl::OkStatus());
  EXPECT_TRUE(loop_->member());
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(), "ready join on-joined step step leave:LEAVE_REASON_FINISHED await-end");
  EXPECT_TRUE(loop_->ended());
  EXPECT_FALSE(loop_->member());
  EXPECT_EQ(loop_->over(), absl::OkStatus());
}

TEST_F(TrainingLoopTest, TheChiefDeclaresTheJobAndEndsTheServers) {
  MakeChief();
  EXPECT_EQ(loop_->Initialise(), absl::OkStatus());
  EXPECT_EQ(membership_.run_id.size(), 16u);
  EXPECT_EQ(loop_->Join(), absl::OkStatus());
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(
      script_.Calls(),
      "initialise ready join on-joined step step others pull before-end leave:LEAVE_REASON_FINISHED finish");
}

// A synchronous job's last version is saved before the chief waits for the others.
TEST_F(TrainingLoopTest, TheChiefTakesSnapshotsBetweenStepsAndAtTheEnd) {
  MakeChief(/*snapshots=*/true);
  Join();
  EXPECT_EQ(loop_->SaveNow(std::chrono::seconds(20)), absl::OkStatus());
  EXPECT_EQ(script_.Calls(), "snapshot") << "of the first values";
  steps_.at = 1;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(), "step snapshot others pull before-end leave:LEAVE_REASON_FINISHED finish");
}

// Other workers make updates after the chief's last step.
TEST_F(TrainingLoopTest, AnAsynchronousJobIsSavedWhenAllHaveLeft) {
  job_.set_mode(v1::MODE_ASYNC);
  job_.set_dynamic_sharding(true);
  MakeChief(/*snapshots=*/true);
  steps_.at = 2;
  Join();
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(),
            "others end-training pull snapshot before-end leave:LEAVE_REASON_FINISHED finish");
}

TEST_F(TrainingLoopTest, AWorkerThatLostItsPlaceJoinsAgain) {
  MakeWorker();
  Join();
  script_.Fail("step", kLost);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(),
            "step reconnect ready join on-joined step step leave:LEAVE_REASON_FINISHED await-end");
  EXPECT_THAT(reports_, ElementsAre("ps/1 was restarted"));
}

TEST_F(TrainingLoopTest, TheChiefDeclaresTheSameRunAgain) {
  MakeChief();
  EXPECT_EQ(loop_->Initialise(), absl::OkStatus());
  Join();
  const std::string first = membership_.run_id;
  EXPECT_EQ(loop_->Recover(kLost), absl::OkStatus());
  EXPECT_EQ(script_.Calls(), "reconnect initialise ready join on-joined");
  EXPECT_EQ(membership_.run_id, first);
}

// Servers may be lost after the last step, and are rolled back.
TEST_F(TrainingLoopTest, StepsGoOnAfterTheEndFailed) {
  MakeWorker();
  steps_.at = 2;
  Join();
  script_.Fail("await-end", kLost);
  script_.Fail("reconnect", kLost);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(),
            "leave:LEAVE_REASON_FINISHED await-end reconnect reconnect ready join on-joined "
            "leave:LEAVE_REASON_FINISHED await-end");
}

TEST_F(TrainingLoopTest, AFailureOfTheWorkersOwnActionsIsRecoveredFromToo) {
  MakeWorker();
  script_.Fail("on-joined", kLost);
  EXPECT_EQ(loop_->Join(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(), "ready join on-joined reconnect ready join on-joined");
}

TEST_F(TrainingLoopTest, ItGivesUpAfterTenAttemptsWithoutAnUpdate) {
  MakeWorker();
  Join();
  for (int i = 0; i < 100; ++i) script_.Fail("join", kLost);
  EXPECT_EQ(loop_->Recover(kLost), kLost);
  EXPECT_EQ(reports_.size(), 10u);
}

TEST_F(TrainingLoopTest, AnUpdateAllowsTenMoreAttempts) {
  MakeWorker();
  steps_.final_version = 0;
  Join();
  for (int i = 0; i < 10; ++i) ASSERT_EQ(loop_->Recover(kLost), absl::OkStatus()) << i;
  ++steps_.at;
  for (int i = 0; i < 11; ++i) ASSERT_EQ(loop_->Recover(kLost), absl::OkStatus()) << i;
  EXPECT_EQ(loop_->Recover(kLost), kLost);
}

TEST_F(TrainingLoopTest, AFailureThatRulesOutReconnectingIsReturned) {
  MakeWorker();
  Join();
  membership_.reconnects = false;
  EXPECT_EQ(loop_->Recover(kLost), kLost);
  EXPECT_EQ(loop_->Recover(kPermanent), kPermanent);
  EXPECT_EQ(script_.Calls(), "");
  EXPECT_TRUE(loop_->member()) << "leaving is up to the caller";
}

TEST_F(TrainingLoopTest, AnInterruptedWorkerDoesNotRecover) {
  MakeWorker();
  Join();
  loop_->Interrupt(absl::CancelledError("signal"));
  EXPECT_TRUE(loop_->interrupted());
  EXPECT_EQ(loop_->Recover(kLost), kLost);
  EXPECT_EQ(script_.Calls(), "interrupt:signal");
}

TEST_F(TrainingLoopTest, TheReasonOfLeavingFollowsFromTheFailure) {
  const auto reason = [this](absl::Status failure) {
    MakeWorker();
    Join();
    loop_->LeaveAfter(failure);
    return script_.Calls();
  };
  EXPECT_EQ(reason(kPermanent), "leave:LEAVE_REASON_FAILED:a row has no target");
  EXPECT_EQ(reason(absl::ResourceExhaustedError("memory")), "leave:LEAVE_REASON_FAILED:memory");
  EXPECT_EQ(reason(absl::CancelledError("signal")), "leave:LEAVE_REASON_STOPPED:signal");
  EXPECT_EQ(reason(absl::UnavailableError("ps/0")), "leave:LEAVE_REASON_STOPPED:ps/0");
  EXPECT_EQ(reason(absl::FailedPreconditionError("other job")), "leave:LEAVE_REASON_STOPPED:other job");
  EXPECT_EQ(reason(absl::OkStatus()), "");
}

TEST_F(TrainingLoopTest, AWorkerLeavesOnce) {
  MakeWorker();
  loop_->Leave(v1::LEAVE_REASON_STOPPED, "");
  EXPECT_EQ(script_.Calls(), "") << "it has not joined";
  Join();
  loop_->Leave(v1::LEAVE_REASON_STOPPED, "");
  loop_->Leave(v1::LEAVE_REASON_STOPPED, "");
  EXPECT_EQ(script_.Calls(), "leave:LEAVE_REASON_STOPPED");
}

// The others do not wait for the end of a worker that has finished, unless they have no servers.
TEST_F(TrainingLoopTest, AWorkerThatFailsWhileItAwaitsTheEndLeavesAgain) {
  MakeWorker();
  steps_.at = 2;
  Join();
  script_.Fail("await-end", absl::CancelledError("signal"));
  const absl::Status failure = Run();
  loop_->LeaveAfter(failure);
  EXPECT_EQ(script_.Calls(), "leave:LEAVE_REASON_FINISHED await-end leave:LEAVE_REASON_STOPPED:signal");
}

TEST_F(TrainingLoopTest, AJobThatIsOverIsNoFailure) {
  MakeWorker();
  Join();
  script_.Fail("step", TrainingIsOver());
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(), "step");
  EXPECT_TRUE(loop_->finished());
  EXPECT_TRUE(loop_->ended());
  EXPECT_EQ(loop_->over(), TrainingIsOver());
  loop_->Leave(v1::LEAVE_REASON_STOPPED, "");
  EXPECT_EQ(script_.Calls(), "");
}

TEST_F(TrainingLoopTest, AWorkerThatComesTooLateIsNoFailure) {
  MakeWorker();
  script_.Fail("ready", TrainingIsOver());
  EXPECT_EQ(loop_->Join(), absl::OkStatus());
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(), "ready");
  EXPECT_TRUE(IsOver(loop_->over()));
}

TEST_F(TrainingLoopTest, TheChiefKeepsTheServersIfItsActionsBeforeTheEndFail) {
  MakeChief();
  steps_.at = 2;
  Join();
  script_.Fail("before-end", kPermanent);
  EXPECT_EQ(Run(), kPermanent);
  EXPECT_EQ(script_.Calls(), "others pull before-end");
}

TEST_F(TrainingLoopTest, ThePositionOfASynchronousJobFollowsItsUpdates) {
  membership_.start_at = {.position = 40, .clock = 50, .version_offset = 3};
  steps_.final_version = 0;
  steps_.at = 10;
  MakeWorker();
  Join();
  EXPECT_EQ(loop_->position(), 7);
  EXPECT_EQ(loop_->PositionAfterStep(), 41);
  loop_->Advance();
  EXPECT_EQ(loop_->position(), 7);
  ++steps_.at;
  EXPECT_EQ(loop_->position(), 8);
  EXPECT_EQ(loop_->PositionAfterStep(), 42);
}

TEST_F(TrainingLoopTest, ThePositionOfAnotherJobIsTheWorkersOwn) {
  membership_.start_at = {.position = 4, .clock = 6, .version_offset = 3};
  for (const auto& [mode, position] : {std::pair(v1::MODE_ASYNC, 4), std::pair(v1::MODE_SSP, 6)}) {
    job_.set_mode(mode);
    MakeWorker();
    Join();
    EXPECT_EQ(loop_->position(), position);
    loop_->Advance();
    EXPECT_EQ(loop_->position(), position + 1);
    EXPECT_EQ(loop_->Recover(kLost), absl::OkStatus());
    EXPECT_EQ(loop_->position(), position) << "as the servers know it";
  }
}

TEST_F(TrainingLoopTest, AWorkerMayBeDoneBeforeTheJob) {
  job_.set_mode(v1::MODE_ASYNC);
  steps_.final_version = 0;
  membership_.start_at = {.position = 4};
  MakeWorkerUpTo(/*last_position=*/6);
  Join();
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(), "step step leave:LEAVE_REASON_FINISHED await-end");
}

TEST_F(TrainingLoopTest, AWorkItemHasAPositionInTheEndlessSequenceOfEpochs) {
  job_.set_dynamic_sharding(true);
  job_.set_num_examples(100);
  MakeWorker();
  Join();
  v1::WorkItem& item = *steps_.next.add_work_items();
  item.set_epoch(2);
  item.set_first(30);
  EXPECT_EQ(loop_->AwaitWork(), absl::OkStatus());
  EXPECT_EQ(loop_->AwaitWork(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(), "await-work") << "the second call finds the item";
  EXPECT_EQ(loop_->PositionAfterStep(), 230);
}

TEST_F(TrainingLoopTest, TheEndOfTheJobEndsTheWaitForWork) {
  job_.set_dynamic_sharding(true);
  MakeWorker();
  Join();
  script_.Fail("await-work", TrainingIsOver());
  EXPECT_EQ(loop_->AwaitWork(), absl::OkStatus());
  EXPECT_TRUE(loop_->finished());
  EXPECT_EQ(loop_->AwaitWork(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(), "await-work");
}

}  // namespace
}  // namespace cairn::client
