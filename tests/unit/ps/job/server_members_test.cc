// The members of a job, through the calls of a server.
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/job/server_calls.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using ServerMembersTest = ServerTest;

TEST_F(ServerMembersTest, AWorkersNameHasALimit) {
  MakeReady();
  v1::JoinRequest request;
  request.set_task(std::string(257, 'w'));
  EXPECT_THAT(MessageOf(Call(server_, &Server::Join, request).status()), HasSubstr("257 bytes, at most 256"));
}

TEST_F(ServerMembersTest, AWorkerThatTheJobLacksCannotJoin) {
  MakeReady();
  EXPECT_EQ(Join(2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Join(-1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ServerMembersTest, AnIncarnationIsAcceptedOnlyWithTheSealOfAServer) {
  v1::CreateRequest create = TrainingJob();
  create.set_seal_key("the servers' own key");
  Server other({.index = 0, .cluster_hash = 17, .incarnation = 6, .connect_to_leader = nullptr}, clock_);
  for (Server* server : {&server_, &other}) {
    server->OnInitialised(Call(*server, &Server::Create, create).value().layout());
  }
  v1::JoinRequest request;
  request.set_worker(1);
  request.set_incarnation(std::numeric_limits<uint32_t>::max());
  const absl::Status invented = Call(other, &Server::Join, request).status();
  EXPECT_EQ(invented.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(MessageOf(invented),
              HasSubstr("incarnation 4294967295, which no server of this job has given it"));

  const auto joined = Join(1);
  ASSERT_TRUE(joined.ok()) << joined.status();
  request.set_incarnation(joined->incarnation());
  EXPECT_EQ(Call(other, &Server::Join, request).status().code(), absl::StatusCode::kPermissionDenied);
  request.set_incarnation_seal(joined->incarnation_seal());
  v1::JoinRequest as_another = request;
  as_another.set_worker(0);
  EXPECT_EQ(Call(other, &Server::Join, as_another).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(Call(other, &Server::Join, request).ok());
}

TEST_F(ServerMembersTest, WithoutAKeyNoIncarnationIsAccepted) {
  MakeReady();
  v1::JoinRequest request;
  request.set_worker(1);
  request.set_incarnation(Join(1)->incarnation());
  EXPECT_EQ(Call(server_, &Server::Join, request).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(ServerMembersTest, ASecondLiveProcessOfAWorkerIsRefusedAndTheFirstIsNamed) {
  MakeReady();
  v1::JoinRequest first;
  first.set_worker(0);
  first.mutable_process()->set_id(1);
  first.mutable_process()->set_pid(42);
  first.mutable_process()->set_host("node-1");
  first.mutable_process()->set_address("ipv4:10.0.0.1:5000");
  ASSERT_TRUE(Call(server_, &Server::Join, first).ok());
  v1::JoinRequest second = first;
  second.mutable_process()->set_id(2);
  second.mutable_process()->set_pid(43);
  second.mutable_process()->set_host("node-2");
  second.mutable_process()->clear_address();
  EXPECT_EQ(Call(server_, &Server::Join, second).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(Heartbeat(0).ok());
  const absl::Status refused = Call(server_, &Server::Join, second).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      MessageOf(refused),
      HasSubstr(
          "worker/0 is already running: process 42 on node-1 (ipv4:10.0.0.1:5000) is alive, and this is "
          "process 43 on node-2"));
  EXPECT_TRUE(Heartbeat(0).ok()) << "the first one is not disturbed";
}

TEST_F(ServerMembersTest, ASilentProcessLearnsWhichProcessReplacedIt) {
  MakeReady();
  v1::JoinRequest request;
  request.set_worker(0);
  request.mutable_process()->set_id(1);
  ASSERT_TRUE(Call(server_, &Server::Join, request).ok());
  request.mutable_process()->set_id(2);
  request.mutable_process()->set_pid(43);
  request.mutable_process()->set_host("node-2");
  EXPECT_EQ(Call(server_, &Server::Join, request).status().code(), absl::StatusCode::kUnavailable);
  clock_.Advance(std::chrono::seconds(5));
  ASSERT_TRUE(Call(server_, &Server::Join, request).ok());
  const absl::Status ousted = Heartbeat(0, 1).status();
  EXPECT_EQ(ousted.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(MessageOf(ousted), HasSubstr("since process 43 on node-2 has joined in its place"));
}

TEST_F(ServerMembersTest, AHeartbeatIsAnsweredWithTheAwaitedWorkers) {
  MakeReady();
  ASSERT_TRUE(Join(0).ok());
  EXPECT_EQ(Heartbeat(0)->waiting_for(), "worker/0, worker/1");
  EXPECT_EQ(Heartbeat(0)->server_incarnation(), 5u);
}

TEST_F(ServerMembersTest, AnExpiredLeaseRemovesItsWorkerFromTheRound) {
  MakeReady();
  ASSERT_TRUE(Join(0).ok());
  ASSERT_TRUE(Join(1).ok());
  clock_.Advance(std::chrono::seconds(8));
  ASSERT_TRUE(Heartbeat(0).ok());
  clock_.Advance(std::chrono::seconds(8));
  server_.Tick();
  EXPECT_EQ(Heartbeat(0)->waiting_for(), "worker/0");
  const absl::Status late = Heartbeat(1).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(MessageOf(late), HasSubstr("incarnation 1 of worker/1 is not a member"));
}

TEST_F(ServerMembersTest, ALostWorkerStaysInTheRoundIfRoundsWaitForItsReturn) {
  v1::CreateRequest request = TrainingJob();
  request.mutable_job()->set_wait_for_return(true);
  server_.OnInitialised(Create(request)->layout());
  ASSERT_TRUE(Join(0).ok());
  ASSERT_TRUE(Join(1).ok());
  const auto job = server_.JobToFollow("run", 0);
  ASSERT_TRUE(job.ok()) << job.status();
  clock_.Advance(std::chrono::seconds(11));
  server_.Tick();
  EXPECT_THAT((*job)->sequencer()->WaitingFor(), ElementsAre(0, 1));
  v1::HeartbeatRequest heartbeat;
  heartbeat.set_incarnation(1);
  EXPECT_EQ(Call(server_, &Server::Heartbeat, heartbeat).status().code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace cairn::ps
