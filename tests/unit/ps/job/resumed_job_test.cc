// Jobs that continue at a later generation, after a rollback.
#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/job/server_calls.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using ResumedJobTest = ServerTest;

// The job may be rolled back after the worker has joined at ps/0: the worker joins again.
TEST_F(ResumedJobTest, AnIncarnationOfAnotherGenerationIsRefusedForNow) {
  MakeReady();
  v1::CreateRequest next = TrainingJob();
  next.mutable_job()->set_generation(2);
  server_.OnInitialised(Create(next)->layout());
  v1::JoinRequest request;
  request.set_worker(1);
  request.set_incarnation((uint64_t{1} << 32) + 1);
  const absl::Status refused = Call(server_, &Server::Join, request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(MessageOf(refused), HasSubstr("incarnation 4294967297 is of generation 1"));
  EXPECT_THAT(MessageOf(refused), HasSubstr("ps/0 is at generation 2"));
}

TEST_F(ResumedJobTest, OnlyTheNextGenerationReplacesAReadyJob) {
  v1::CreateRequest next = TrainingJob();
  MakeReady();
  ASSERT_TRUE(Join(0).ok());
  EXPECT_EQ(Create(next).status().code(), absl::StatusCode::kFailedPrecondition) << "the same generation";
  next.mutable_job()->set_generation(1);
  next.mutable_job()->mutable_resumed()->set_version(12);
  v1::CreateRequest other = next;
  other.mutable_job()->set_run_id("another run");
  EXPECT_EQ(Create(other).status().code(), absl::StatusCode::kFailedPrecondition);
  const auto created = Create(next);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(Describe().state(), v1::STATE_INITIALISING);
  EXPECT_EQ(Describe().version(), 12);
  server_.OnInitialised(created->layout());
  next.mutable_job()->set_generation(0);
  EXPECT_THAT(MessageOf(Create(next).status()),
              HasSubstr("cannot start generation 0 of job run: generation 1 is under way"));
  EXPECT_EQ(Join(0)->incarnation(), (uint64_t{1} << 32) + 1)
      << "above all incarnations of the previous generation";
}

TEST_F(ResumedJobTest, AWorkerThatDoesNotRejoinAfterARollbackIsLost) {
  v1::CreateRequest next = TrainingJob();
  MakeReady();
  next.mutable_job()->set_generation(1);
  next.mutable_job()->mutable_resumed();
  next.mutable_job()->set_lease_seconds(3600);
  server_.OnInitialised(Create(next)->layout());
  ASSERT_TRUE(Join(0).ok());
  const auto job = server_.JobToFollow("run", 1);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(server_.JobToFollow("run", 0).status().code(), absl::StatusCode::kUnavailable);
  server_.Tick();
  EXPECT_THAT((*job)->sequencer()->WaitingFor(), ElementsAre(0, 1));
  clock_.Advance(std::chrono::seconds(31));
  server_.Tick();
  EXPECT_THAT((*job)->sequencer()->WaitingFor(), ElementsAre(0));
}

TEST_F(ResumedJobTest, AJobCreatedAfterAFailedAttemptWaitsForAllWorkers) {
  v1::CreateRequest begins = TrainingJob();
  begins.mutable_job()->set_generation(1);
  begins.mutable_job()->set_lease_seconds(3600);
  server_.OnInitialised(Create(begins)->layout());
  ASSERT_TRUE(Join(0).ok());
  clock_.Advance(std::chrono::seconds(31));
  server_.Tick();
  const auto job = server_.JobToFollow("run", 1);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT((*job)->sequencer()->WaitingFor(), ElementsAre(0, 1));
}

}  // namespace
}  // namespace cairn::ps
