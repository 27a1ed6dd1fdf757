#include "ps/job/job_lifecycle.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using testing::HasSubstr;

constexpr uint64_t kProcess = 500;

std::shared_ptr<ActiveJob> JobOf(const v1::Job& job, uint64_t layout) {
  return ActiveJob::Create(job, Vectors({{"a", 2}}), layout, {.memory_limit = 1 << 20}).value();
}

v1::ReplicationOrigin OriginOf(const v1::Job& job, int64_t epoch) {
  v1::ReplicationOrigin origin;
  *origin.mutable_job() = job;
  origin.set_epoch(epoch);
  return origin;
}

// ps/1's shard, in the process of ps/0.
class JobLifecycleTest : public testing::Test {
 protected:
  // The job of run "run", at this generation.
  static v1::Job Generation(int64_t generation) {
    v1::Job job = TrainingJob().job();
    job.set_generation(generation);
    return job;
  }
  void Create(int64_t generation = 0) {
    lifecycle_.Create(JobOf(Generation(generation), lifecycle_.DrawLayout()));
  }
  void MakeReady() {
    Create();
    lifecycle_.BecomeReady(At(0));
  }
  void BecomeBackup(uint64_t incarnation) { lifecycle_.BecomeBackup(JobOf(Generation(0), 7), incarnation); }

  JobLifecycle lifecycle_{"ps/1", "ps/0", kProcess};
};

TEST_F(JobLifecycleTest, AJobIsReadyOnlyAfterItsValuesAreWritten) {
  EXPECT_EQ(lifecycle_.state(), v1::STATE_EMPTY);
  EXPECT_EQ(lifecycle_.WhatReadyAwaits(), "the chief has not declared the job");
  EXPECT_EQ(lifecycle_.ReadyJob().status(), absl::AbortedError("ps/1 has no variables yet"));
  Create();
  EXPECT_EQ(lifecycle_.state(), v1::STATE_INITIALISING);
  EXPECT_EQ(lifecycle_.WhatReadyAwaits(), "the chief has not written the variables");
  EXPECT_EQ(lifecycle_.ReadyJob().status(), absl::AbortedError("ps/1 has no variables yet"));
  EXPECT_TRUE(lifecycle_.is_initialising(lifecycle_.job()->layout()));
  EXPECT_FALSE(lifecycle_.is_initialising(lifecycle_.job()->layout() + 1)) << "the values of another job";
  EXPECT_EQ(lifecycle_.ready_at(), std::nullopt);
  lifecycle_.BecomeReady(At(3));
  EXPECT_EQ(lifecycle_.ready_at(), At(3));
  EXPECT_EQ(lifecycle_.ReadyJob().value(), lifecycle_.job());
}

TEST_F(JobLifecycleTest, AwaitsItsBackupOnce) {
  Create();
  EXPECT_FALSE(lifecycle_.awaits_backup());
  EXPECT_TRUE(lifecycle_.AwaitBackup());
  EXPECT_FALSE(lifecycle_.AwaitBackup());
  EXPECT_TRUE(lifecycle_.awaits_backup());
  Create();
  EXPECT_FALSE(lifecycle_.awaits_backup()) << "the new job has no values";
}

TEST_F(JobLifecycleTest, OnlyALaterGenerationOfTheRunReplacesAReadyJob) {
  EXPECT_EQ(lifecycle_.CheckReplaceable(Generation(0), false), absl::OkStatus());
  Create(/*generation=*/1);
  EXPECT_EQ(lifecycle_.CheckReplaceable(Generation(1), false), absl::OkStatus()) << "it is not ready";
  EXPECT_THAT(lifecycle_.CheckReplaceable(Generation(0), false).message(),
              HasSubstr("cannot start generation 0 of job run: generation 1 is under way"));
  lifecycle_.BecomeReady(At(0));
  EXPECT_THAT(lifecycle_.CheckReplaceable(Generation(1), false).message(), HasSubstr("job run is under way"));
  EXPECT_EQ(lifecycle_.CheckReplaceable(Generation(2), false), absl::OkStatus());
  v1::Job other = Generation(2);
  other.set_run_id("another run");
  EXPECT_EQ(lifecycle_.CheckReplaceable(other, false).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(JobLifecycleTest, ABackupIsReplacedByAnotherRunOnlyWhileItsPrimaryIsSilent) {
  BecomeBackup(7);
  v1::Job other = Generation(0);
  other.set_run_id("another run");
  EXPECT_TRUE(absl::IsUnavailable(lifecycle_.CheckReplaceable(other, /*primary_is_heard=*/true)));
  EXPECT_EQ(lifecycle_.CheckReplaceable(other, /*primary_is_heard=*/false), absl::OkStatus());
  EXPECT_EQ(lifecycle_.CheckReplaceable(Generation(1), /*primary_is_heard=*/true), absl::OkStatus());
}

TEST_F(JobLifecycleTest, ABackupServesNothing) {
  BecomeBackup(7);
  const absl::Status refused =
      absl::UnavailableError("ps/0 has the backup of ps/1's shard, and does not serve it");
  EXPECT_EQ(lifecycle_.CheckServes(), refused);
  EXPECT_EQ(lifecycle_.ReadyJob().status(), refused);
  EXPECT_EQ(lifecycle_.JobForLayout(7).status(), refused);
  EXPECT_TRUE(absl::IsUnavailable(lifecycle_.JobToFollow("run", 0).status()));
}

TEST_F(JobLifecycleTest, APromotedBackupKeepsItsPrimarysIncarnationInALaterEpoch) {
  BecomeBackup(7);
  EXPECT_EQ(lifecycle_.incarnation(), 7u);
  lifecycle_.Promote(/*epoch=*/1, At(5));
  EXPECT_EQ(lifecycle_.state(), v1::STATE_READY);
  EXPECT_EQ(lifecycle_.ready_at(), At(5));
  EXPECT_EQ(lifecycle_.incarnation(), 7u);
  EXPECT_EQ(lifecycle_.epoch(), 1);
  EXPECT_TRUE(absl::IsAborted(lifecycle_.CheckMayBackUp(OriginOf(Generation(0), 0), 0)))
      << "the caller has been replaced";
}

TEST_F(JobLifecycleTest, AJobThatReplacesABackupHasItsOwnIncarnation) {
  EXPECT_EQ(lifecycle_.NextIncarnation(), kProcess);
  BecomeBackup(7);
  EXPECT_EQ(lifecycle_.NextIncarnation(), kProcess + 1);
  Create(/*generation=*/1);
  EXPECT_EQ(lifecycle_.incarnation(), kProcess + 1);
  EXPECT_EQ(lifecycle_.NextIncarnation(), kProcess + 1);
}

TEST_F(JobLifecycleTest, ADroppedShardIsNotServedAndItsPrimaryIsRefused) {
  BecomeBackup(7);
  lifecycle_.Promote(/*epoch=*/1, At(5));
  const auto dropped = lifecycle_.Drop();
  ASSERT_TRUE(dropped.has_value());
  EXPECT_NE(*dropped, nullptr);
  EXPECT_EQ(lifecycle_.state(), v1::STATE_EMPTY);
  EXPECT_EQ(lifecycle_.incarnation(), kProcess + 1);
  EXPECT_EQ(lifecycle_.CheckServes(), absl::UnavailableError("ps/0 does not serve ps/1's shard any more"));
  EXPECT_TRUE(absl::IsAborted(lifecycle_.CheckMayBackUp(OriginOf(Generation(0), 0), 0)))
      << "it lacks what was answered in epoch 1";
  EXPECT_EQ(lifecycle_.CheckMayBackUp(OriginOf(Generation(0), 2), 0), absl::OkStatus());
}

TEST_F(JobLifecycleTest, AnEndedJobIsNotDropped) {
  MakeReady();
  EXPECT_TRUE(lifecycle_.Fail(absl::InternalError("NaN"), At(1)));
  EXPECT_FALSE(lifecycle_.Drop().has_value());
  EXPECT_NE(lifecycle_.job(), nullptr);
}

TEST_F(JobLifecycleTest, APrimaryIsBehindALaterEpochOrGenerationOfItsRun) {
  MakeReady();
  EXPECT_FALSE(lifecycle_.IsBehind(OriginOf(Generation(0), 0)));
  EXPECT_TRUE(lifecycle_.IsBehind(OriginOf(Generation(0), 1)));
  EXPECT_TRUE(lifecycle_.IsBehind(OriginOf(Generation(1), 0)));
  v1::Job other = Generation(1);
  other.set_run_id("another run");
  EXPECT_FALSE(lifecycle_.IsBehind(OriginOf(other, 1)));
}

TEST_F(JobLifecycleTest, TheFirstFailureIsReported) {
  MakeReady();
  EXPECT_TRUE(lifecycle_.Fail(absl::InternalError("first"), At(1)));
  EXPECT_FALSE(lifecycle_.Fail(absl::InternalError("second"), At(2)));
  EXPECT_EQ(lifecycle_.ReadyJob().status(), absl::InternalError("first"));
  EXPECT_FALSE(lifecycle_.Finish(/*cancelled=*/false));
  EXPECT_EQ(lifecycle_.state(), v1::STATE_FAILED) << "a failed job does not finish";
}

TEST_F(JobLifecycleTest, AFailedJobEndsWhenAllMembersHaveLeftOrAfterTenSeconds) {
  MakeReady();
  lifecycle_.Fail(absl::UnavailableError("a task was lost"), At(1));
  EXPECT_EQ(lifecycle_.Ended(At(11), /*all_left=*/false), std::nullopt);
  EXPECT_EQ(lifecycle_.Ended(At(12), /*all_left=*/false), ExitCode::kRetryable);
  EXPECT_EQ(lifecycle_.Ended(At(1), /*all_left=*/true), ExitCode::kRetryable);
}

TEST_F(JobLifecycleTest, ACancelledJobEndsAsDone) {
  MakeReady();
  EXPECT_TRUE(lifecycle_.Finish(/*cancelled=*/true));
  EXPECT_EQ(lifecycle_.Ended(At(1), /*all_left=*/true), std::nullopt) << "its members have not been notified";
  lifecycle_.Fail(absl::InternalError("cancelled"), At(1));
  EXPECT_EQ(lifecycle_.Ended(At(1), /*all_left=*/true), ExitCode::kDone);
}

TEST_F(JobLifecycleTest, AnAnnouncedCancellationOutweighsTheMembersReport) {
  MakeReady();
  lifecycle_.AnnounceCancel(At(0));
  EXPECT_EQ(lifecycle_.state(), v1::STATE_READY) << "nothing else happens";
  lifecycle_.Fail(absl::InternalError("worker/0 failed: the job was cancelled"), At(1));
  EXPECT_EQ(lifecycle_.Ended(At(1), /*all_left=*/true), std::nullopt)
      << "the operator's call must still find the server";
  EXPECT_EQ(lifecycle_.Ended(At(12), /*all_left=*/true), ExitCode::kDone) << "the operator has disappeared";
  EXPECT_TRUE(lifecycle_.Finish(/*cancelled=*/true));
  EXPECT_EQ(lifecycle_.Ended(At(1), /*all_left=*/true), ExitCode::kDone);
}

TEST_F(JobLifecycleTest, ARepeatedAnnouncementDoesNotMakeTheCancellationAFailure) {
  MakeReady();
  lifecycle_.AnnounceCancel(At(0));
  lifecycle_.Fail(absl::InternalError("worker/0 failed: the job was cancelled"), At(1));
  lifecycle_.AnnounceCancel(At(2));
  EXPECT_EQ(lifecycle_.Ended(At(2), /*all_left=*/true), std::nullopt);
  EXPECT_TRUE(lifecycle_.Finish(/*cancelled=*/true));
  EXPECT_EQ(lifecycle_.Ended(At(2), /*all_left=*/true), ExitCode::kDone);
}

TEST_F(JobLifecycleTest, AFailureLongAfterAnAnnouncementIsAFailure) {
  MakeReady();
  lifecycle_.AnnounceCancel(At(0));
  lifecycle_.Fail(absl::InternalError("NaN"), At(11));
  EXPECT_EQ(lifecycle_.Ended(At(11), /*all_left=*/true), ExitCode::kFailure);
}

TEST_F(JobLifecycleTest, AFailureBeforeTheAnnouncementIsAFailure) {
  MakeReady();
  lifecycle_.Fail(absl::InternalError("NaN"), At(1));
  lifecycle_.AnnounceCancel(At(2));
  EXPECT_EQ(lifecycle_.Ended(At(2), /*all_left=*/true), ExitCode::kFailure);
}

}  // namespace
}  // namespace cairn::ps
