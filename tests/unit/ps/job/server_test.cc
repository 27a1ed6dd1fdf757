#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/job/server_calls.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ServerTest, TheHandshakeRefusesOtherProtocolsIndicesAndClusters) {
  v1::ConnectRequest request = ConnectFromHere();
  request.set_protocol(net::kProtocolVersion + 1);
  EXPECT_THAT(MessageOf(Call(server_, &Server::Connect, request).status()), HasSubstr("speaks protocol"));

  request = ConnectFromHere();
  request.set_server(3);
  EXPECT_THAT(MessageOf(Call(server_, &Server::Connect, request).status()),
              HasSubstr("this is ps/0, but worker/1 expects ps/3"));

  request = ConnectFromHere();
  request.set_cluster_hash(18);
  const absl::Status other = Call(server_, &Server::Connect, request).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(other), HasSubstr("another cluster than worker/1"));

  request.set_cluster_hash(0);
  EXPECT_TRUE(Call(server_, &Server::Connect, request).ok()) << "a client without a cluster hash is accepted";
}

TEST_F(ServerTest, AnEmptyServerReportsThatItIsEmpty) {
  EXPECT_EQ(Describe().state(), v1::STATE_EMPTY);
  EXPECT_EQ(Describe().incarnation(), 5u);
  EXPECT_EQ(Join(0).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Heartbeat(0).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Call(server_, &Server::PlaceMarker, v1::PlaceMarkerRequest()).status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(ServerTest, AJobIsReadyWhenItsValuesAreWritten) {
  const uint64_t layout = Create(TrainingJob()).value().layout();
  EXPECT_EQ(Describe().state(), v1::STATE_INITIALISING);
  EXPECT_EQ(Join(0).status().code(), absl::StatusCode::kAborted);
  server_.OnInitialised(layout);
  EXPECT_EQ(Describe().state(), v1::STATE_READY);
  EXPECT_EQ(Describe().layout(), layout);
  EXPECT_EQ(Describe().slices_size(), 1);
}

TEST_F(ServerTest, CreatingAgainBeforeTheJobIsReadyRestartsIt) {
  const uint64_t first = Create(TrainingJob()).value().layout();
  const uint64_t second = Create(TrainingJob()).value().layout();
  EXPECT_NE(first, second);
  server_.OnInitialised(first);
  EXPECT_EQ(Describe().state(), v1::STATE_INITIALISING) << "those were the values of the first job";
  EXPECT_EQ(server_.JobForLayout(first).status().code(), absl::StatusCode::kAborted);
}

TEST_F(ServerTest, AJobThatIsReadyIsNotReplaced) {
  MakeReady();
  const absl::Status status = Create(TrainingJob()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status), HasSubstr("job run is under way, at version 0"));
}

TEST_F(ServerTest, MoreWaitersThanTheLimitAreRefused) {
  std::vector<WaitAnswer> answers(WaitList::kMaxWaiting);
  for (WaitAnswer& answer : answers) Wait(v1::CONDITION_READY, 20, answer);
  WaitAnswer refused;
  Wait(v1::CONDITION_READY, 20, refused);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status(), absl::ResourceExhaustedError("4096 calls of Wait are waiting"));
  MakeReady();
  for (const WaitAnswer& answer : answers) EXPECT_TRUE((*answer)->holds());
}

TEST_F(ServerTest, AWaitEndsWhenItsConditionHolds) {
  WaitAnswer answer;
  Wait(v1::CONDITION_READY, 20, answer);
  EXPECT_FALSE(answer.has_value());
  MakeReady();
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE((*answer)->holds());
}

TEST_F(ServerTest, AWaitThatTimesOutReportsWhatIsMissing) {
  WaitAnswer answer;
  Wait(v1::CONDITION_READY, 2, answer);
  clock_.Advance(std::chrono::milliseconds(1900));
  server_.Tick();
  EXPECT_FALSE(answer.has_value());
  clock_.Advance(std::chrono::milliseconds(200));
  server_.Tick();
  EXPECT_FALSE((*answer)->holds());
  EXPECT_EQ((*answer)->missing(), "the chief has not declared the job");
}

TEST_F(ServerTest, AWaitOfNanSecondsEndsAtOnce) {
  WaitAnswer answer;
  Wait(v1::CONDITION_READY, std::numeric_limits<double>::quiet_NaN(), answer);
  ASSERT_TRUE(answer.has_value());
  EXPECT_FALSE((*answer)->holds());
}

TEST_F(ServerTest, AWaitForTheOthersNamesThem) {
  MakeReady();
  ASSERT_TRUE(Join(1).ok());
  WaitAnswer answer;
  Wait(v1::CONDITION_ALL_OTHERS_LEFT, 0, answer);
  EXPECT_EQ((*answer)->missing(), "worker/1 (step 0)");
  Wait(v1::CONDITION_ALL_OTHERS_LEFT, 20, answer);
  Leave(1, v1::LEAVE_REASON_FINISHED);
  EXPECT_TRUE((*answer)->holds());
}

TEST_F(ServerTest, AnEpochWithoutASealIsIgnored) {
  v1::CreateRequest create = TrainingJob();
  create.set_seal_key("the servers' own key");
  server_.OnInitialised(Create(create)->layout());
  v1::ConnectRequest request = ConnectFromHere();
  request.set_incarnation(5);
  request.set_epoch(1);
  request.set_epoch_seal(std::string(32, 'x'));
  EXPECT_EQ(Call(server_, &Server::Connect, request)->state(), v1::STATE_READY);
  EXPECT_EQ(Describe().state(), v1::STATE_READY) << "the shard has not been dropped";
}

TEST_F(ServerTest, AWorkerThatFailsEndsTheJob) {
  MakeReady();
  ASSERT_TRUE(Join(0).ok());
  ASSERT_TRUE(Join(1).ok());
  Leave(1, v1::LEAVE_REASON_FAILED, "no space left");
  EXPECT_EQ(Heartbeat(0)->state(), v1::STATE_FAILED);
  EXPECT_EQ(Heartbeat(0)->failure(), "worker/1 failed: no space left");
  EXPECT_EQ(Heartbeat(0)->failure_code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_EQ(server_.ended(), std::nullopt) << "worker/0 has not been notified yet";
  Leave(0, v1::LEAVE_REASON_FAILED);
  EXPECT_EQ(server_.ended(), ExitCode::kFailure);
}

TEST_F(ServerTest, AFailedJobsServerEndsEvenIfSomeClientsWereNotNotified) {
  MakeReady();
  ASSERT_TRUE(Join(0).ok());
  ASSERT_TRUE(Join(1).ok());
  Leave(1, v1::LEAVE_REASON_FAILED, "x");
  clock_.Advance(std::chrono::seconds(11));
  EXPECT_EQ(server_.ended(), ExitCode::kFailure);
}

TEST_F(ServerTest, AfterFinishTheServerIsDone) {
  MakeReady();
  EXPECT_EQ(server_.ended(), std::nullopt);
  EXPECT_TRUE(Finish().ok());
  EXPECT_TRUE(Finish().ok()) << "safe to repeat";
  EXPECT_EQ(server_.ended(), ExitCode::kDone);
}

TEST_F(ServerTest, ACancelledJobsMembersAreNotifiedBeforeTheServerEnds) {
  MakeReady();
  ASSERT_TRUE(Join(0).ok());
  ASSERT_TRUE(Join(1).ok());
  v1::FinishRequest cancel;
  cancel.set_cancelled_by("alice@host7");
  EXPECT_TRUE(Call(server_, &Server::Finish, cancel).ok());
  EXPECT_TRUE(Call(server_, &Server::Finish, cancel).ok()) << "safe to repeat";
  EXPECT_EQ(Heartbeat(0)->state(), v1::STATE_FAILED);
  EXPECT_THAT(Heartbeat(0)->failure(), HasSubstr("the job was cancelled by alice@host7"));
  EXPECT_EQ(server_.ended(), std::nullopt) << "worker/0 has not been notified yet";
  Leave(0, v1::LEAVE_REASON_FAILED, "the job was cancelled");
  EXPECT_EQ(server_.ended(), std::nullopt) << "worker/1 has not been notified either";
  Leave(1, v1::LEAVE_REASON_FAILED, "the job was cancelled");
  EXPECT_EQ(server_.ended(), ExitCode::kDone);
}

// The operator's call reaches ps/0 first. Workers learn of the cancellation there, and leave this server as
// failed before the call arrives here.
TEST_F(ServerTest, AnAnnouncedCancellationIsNoFailureAlthoughItsMembersReportOne) {
  MakeReady();
  ASSERT_TRUE(Join(0).ok());
  ASSERT_TRUE(Join(1).ok());
  v1::FinishRequest cancel;
  cancel.set_cancelled_by("alice@host7");
  cancel.set_announce(true);
  EXPECT_TRUE(Call(server_, &Server::Finish, cancel).ok());
  EXPECT_EQ(Heartbeat(0)->state(), v1::STATE_READY) << "no member is notified yet";
  for (int worker : {0, 1}) Leave(worker, v1::LEAVE_REASON_FAILED, "the job was cancelled by alice@host7");
  EXPECT_EQ(server_.ended(), std::nullopt) << "the call must still find this server";
  cancel.set_announce(false);
  EXPECT_TRUE(Call(server_, &Server::Finish, cancel).ok());
  EXPECT_EQ(server_.ended(), ExitCode::kDone);
}

TEST_F(ServerTest, AServerFinishedWithoutAJobRefusesLaterCalls) {
  EXPECT_TRUE(Finish().ok());
  EXPECT_EQ(Create(TrainingJob()).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Join(0).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Call(server_, &Server::PlaceMarker, v1::PlaceMarkerRequest()).status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(ServerTest, ShutdownAnswersWaitingAndLaterCalls) {
  WaitAnswer waiting, coming;
  Wait(v1::CONDITION_READY, 20, waiting);
  server_.Shutdown();
  Wait(v1::CONDITION_READY, 20, coming);
  EXPECT_EQ(waiting->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(coming->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Create(TrainingJob()).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ServerTest, VariablesAreAddedToExistingOnes) {
  ASSERT_TRUE(Create(Variable("a", {1, 2})).ok());
  ASSERT_TRUE(Create(Variable("b", {3})).ok());
  EXPECT_THAT(AllValues(), ElementsAre(1, 2, 3));
  EXPECT_EQ(Create(Variable("a", {9})).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(AllValues(), ElementsAre(1, 2, 3));
}

TEST_F(ServerTest, AVariableWithTooFewValuesIsNotCreated) {
  v1::CreateRequest request = Variable("a", {1, 2});
  request.mutable_values()->RemoveLast();
  EXPECT_EQ(Create(request).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Describe().state(), v1::STATE_EMPTY);
  EXPECT_TRUE(Create(Variable("a", {1, 2})).ok());
  EXPECT_THAT(AllValues(), ElementsAre(1, 2));
}

TEST_F(ServerTest, LayoutsOfDifferentProcessesDiffer) {
  Server other({.index = 0, .cluster_hash = 17, .incarnation = 6, .connect_to_leader = nullptr}, clock_);
  const uint64_t here = Create(TrainingJob()).value().layout();
  EXPECT_NE(Call(other, &Server::Create, TrainingJob()).value().layout(), here);
}

}  // namespace
}  // namespace cairn::ps
