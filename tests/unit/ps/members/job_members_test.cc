#include "ps/members/job_members.h"

#include <chrono>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

v1::JoinRequest As(int worker, const std::string& task, uint64_t process = 0) {
  v1::JoinRequest request;
  request.set_worker(worker);
  request.set_task(task);
  request.mutable_process()->set_id(process);
  return request;
}

v1::Job ElasticJob() {
  v1::Job job = TrainingJob().job();
  job.set_dynamic_sharding(true);
  job.set_elastic(true);
  job.set_max_workers(3);
  return job;
}

// The members of a job with worker/0 and worker/1, and leases of 10 s.
class JobMembersTest : public testing::Test {
 protected:
  bool Heartbeat(JobMembers& members, int worker, int now) {
    v1::HeartbeatRequest request;
    request.set_worker(worker);
    request.set_incarnation(1);
    return members.Heartbeat(request, At(now)).ok();
  }

  const v1::Job job_ = TrainingJob().job();
  JobMembers members_{job_, {.server = "ps/0", .most_workers = 2, .seal_key = "the servers' own key"}};
};

TEST_F(JobMembersTest, AWorkerOfTheJobGetsAnIncarnationThatOtherServersAccept) {
  const auto joined = members_.Join(As(1, "worker/1"), At(0));
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->worker(), 1);
  EXPECT_EQ(joined->incarnation(), 1u);
  JobMembers other(job_, {.server = "ps/1", .most_workers = 2, .seal_key = "the servers' own key"});
  v1::JoinRequest request = As(1, "worker/1");
  request.set_incarnation(1);
  EXPECT_TRUE(absl::IsPermissionDenied(other.Join(request, At(0)).status()));
  request.set_incarnation_seal(joined->incarnation_seal());
  EXPECT_EQ(other.Join(request, At(0)).status(), absl::OkStatus());
  EXPECT_TRUE(other.IsLive(1, 1));
  EXPECT_FALSE(other.IsLive(1, 2));
}

TEST_F(JobMembersTest, AStrangerIsRefused) {
  EXPECT_EQ(members_.Join(As(2, "worker/2"), At(0)).status(),
            absl::InvalidArgumentError("worker/2 is not among the 2 workers of the job"));
  EXPECT_EQ(members_.Join(As(-1, "worker/2"), At(0)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobMembersTest, AnOldIncarnationIsNotAMemberAnyMore) {
  ASSERT_TRUE(members_.Join(As(1, "worker/1", 7), At(0)).ok());
  EXPECT_TRUE(Heartbeat(members_, 1, 1));
  ASSERT_TRUE(members_.Join(As(1, "worker/1", 7), At(2)).ok());
  EXPECT_FALSE(Heartbeat(members_, 1, 3));
  EXPECT_FALSE(members_.Leave(1, 1));
  EXPECT_TRUE(members_.Leave(1, 2));
  EXPECT_FALSE(members_.Leave(1, 2)) << "safe to repeat";
}

TEST_F(JobMembersTest, OnlyAGivenIncarnationMayPush) {
  EXPECT_EQ(members_.CheckIncarnationGiven(1, 1),
            absl::AbortedError("ps/0: incarnation 1 of worker/1 has not joined"));
  ASSERT_TRUE(members_.Join(As(1, "worker/1"), At(0)).ok());
  EXPECT_EQ(members_.CheckIncarnationGiven(1, 1), absl::OkStatus());
  EXPECT_TRUE(absl::IsAborted(members_.CheckIncarnationGiven(1, 2)));
}

TEST_F(JobMembersTest, TheLeaseOfASilentWorkerExpires) {
  ASSERT_TRUE(members_.Join(As(0, "worker/0"), At(0)).ok());
  ASSERT_TRUE(members_.Join(As(1, "worker/1"), At(0)).ok());
  EXPECT_TRUE(Heartbeat(members_, 0, 5));
  EXPECT_THAT(members_.Expire(At(10), std::nullopt), IsEmpty());
  const auto lost = members_.Expire(At(11), std::nullopt);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].worker, 1);
  EXPECT_EQ(lost[0].incarnation, 1u);
  EXPECT_EQ(lost[0].reason, "worker/1 sent no heartbeat for 10 s");
  EXPECT_THAT(members_.Expire(At(11), std::nullopt), IsEmpty()) << "it is reported once";
}

TEST_F(JobMembersTest, AfterARollbackAWorkerHas30SecondsToRejoin) {
  v1::Job job = job_;
  job.set_generation(1);
  job.mutable_resumed();
  job.set_lease_seconds(3600);
  JobMembers members(job, {.server = "ps/0", .most_workers = 2});
  EXPECT_EQ(members.Join(As(0, "worker/0"), At(0))->incarnation(), (uint64_t{1} << 32) + 1);
  EXPECT_THAT(members.Expire(At(100), std::nullopt), IsEmpty()) << "the job is not ready";
  EXPECT_THAT(members.Expire(At(100), At(70)), IsEmpty());
  const auto lost = members.Expire(At(101), At(70));
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].reason, "worker/1 did not rejoin within 30 s");
}

TEST_F(JobMembersTest, AnElasticJobNumbersNewTasksUpToItsLimit) {
  const v1::Job job = ElasticJob();
  JobMembers members(job, {.server = "ps/0", .most_workers = 4096});
  EXPECT_EQ(members.Join(As(-1, "worker/7"), At(0))->worker(), 2);
  EXPECT_EQ(members.TaskOf(2), "worker/7");
  EXPECT_EQ(members.Join(As(-1, "worker/1"), At(0))->worker(), 1) << "an expected task has its index";
  EXPECT_EQ(members.Join(As(-1, "worker/8"), At(0)).status(),
            absl::ResourceExhaustedError("worker/8: the job already has its 3 workers (--max_workers)"))
      << "the chief counts although it is absent";
  EXPECT_EQ(members.Join(As(0, "worker/0"), At(0)).status(), absl::OkStatus()) << "it has a place";
  EXPECT_TRUE(members.Leave(2, 1));
  EXPECT_EQ(members.Join(As(-1, "worker/8"), At(0))->worker(), 3);
}

TEST_F(JobMembersTest, ReportsAreShownPerWorker) {
  ASSERT_TRUE(members_.Join(As(1, "worker/1"), At(0)).ok());
  v1::HeartbeatRequest request;
  request.set_worker(1);
  request.set_incarnation(1);
  request.set_step(312);
  request.mutable_report()->set_device("/gpu:0");
  ASSERT_TRUE(members_.Heartbeat(request, At(2)).ok());
  request.mutable_report()->set_device(std::string(4097, 'x'));
  ASSERT_TRUE(members_.Heartbeat(request, At(2)).ok()) << "a report that is too long is ignored";
  v1::ServerStatus status;
  members_.Describe(At(5), status);
  ASSERT_EQ(status.members_size(), 2);
  EXPECT_EQ(status.members(0).state(), v1::MEMBER_STATE_EXPECTED);
  EXPECT_EQ(status.members(1).state(), v1::MEMBER_STATE_LIVE);
  EXPECT_EQ(status.members(1).step(), 312);
  EXPECT_EQ(status.members(1).heard_seconds(), 3);
  EXPECT_EQ(status.members(1).report().device(), "/gpu:0");
}

TEST_F(JobMembersTest, AReplicatedMemberIsRestoredWithItsLease) {
  v1::ReplicatedMember member;
  member.set_worker(1);
  member.set_incarnation(4);
  member.set_live(true);
  EXPECT_EQ(members_.Put(member, At(0)), absl::OkStatus());
  EXPECT_TRUE(members_.IsLive(1, 4));
  members_.HearAll(At(3));
  EXPECT_THAT(members_.Expire(At(13), std::nullopt), IsEmpty());
  member.set_worker(2);
  EXPECT_THAT(members_.Put(member, At(0)).message(), HasSubstr("a replicated member is worker 2"));
}

}  // namespace
}  // namespace cairn::ps
