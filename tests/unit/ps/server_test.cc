#include "ps/job/server.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/grpc/grpc_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The answer to a call; every call except Wait answers at once.
template <typename Request, typename Response>
absl::StatusOr<Response> Call(Server& server, void (Server::*method)(const Request&, Reply<Response>),
                              const Request& request) {
  absl::StatusOr<Response> answer = absl::UnknownError("no answer yet");
  (server.*method)(request, [&answer](absl::StatusOr<Response> response) { answer = std::move(response); });
  return answer;
}

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

class ServerTest : public testing::Test {
 protected:
  ServerTest()
      : server_({.index = 0, .cluster_hash = 17, .incarnation = 5, .connect_to_leader = nullptr}, clock_) {}

  static v1::ConnectRequest ConnectFromHere() {
    v1::ConnectRequest request;
    request.set_protocol(net::kProtocolVersion);
    request.set_cluster_hash(17);
    request.set_client("worker/1");
    return request;
  }
  v1::ConnectResponse Describe() { return Call(server_, &Server::Connect, ConnectFromHere()).value(); }

  absl::StatusOr<v1::CreateResponse> Create(const v1::CreateRequest& request) {
    return Call(server_, &Server::Create, request);
  }
  void MakeReady() { server_.OnInitialised(Create(TrainingJob()).value().layout()); }

  absl::StatusOr<v1::JoinResponse> Join(int worker) {
    v1::JoinRequest request;
    request.set_worker(worker);
    request.set_task("worker/" + std::to_string(worker));
    return Call(server_, &Server::Join, request);
  }
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(int worker, uint64_t incarnation = 1) {
    v1::HeartbeatRequest request;
    request.set_worker(worker);
    request.set_incarnation(incarnation);
    return Call(server_, &Server::Heartbeat, request);
  }
  void Leave(int worker, v1::LeaveReason reason, const std::string& message = "") {
    v1::LeaveRequest request;
    request.set_worker(worker);
    request.set_incarnation(1);
    request.set_reason(reason);
    request.set_message(message);
    EXPECT_TRUE(Call(server_, &Server::Leave, request).ok());
  }
  // Changes the learning rate, as the first incarnation of the chief.
  absl::Status ChangeConfig(float learning_rate) {
    v1::ChangeConfigRequest request;
    request.set_incarnation(1);
    request.set_number(++config_changes_);
    request.mutable_config_change()->set_learning_rate(learning_rate);
    return Call(server_, &Server::ChangeConfig, request).status();
  }
  using WaitAnswer = std::optional<absl::StatusOr<v1::WaitResponse>>;
  void Wait(v1::Condition condition, double seconds, WaitAnswer& answer) {
    v1::WaitRequest request;
    request.set_condition(condition);
    request.set_wait_seconds(seconds);
    server_.Wait(request,
                 [&answer](absl::StatusOr<v1::WaitResponse> response) { answer = std::move(response); });
  }
  absl::Status Finish() { return Call(server_, &Server::Finish, v1::FinishRequest()).status(); }

  static v1::CreateRequest Variable(const std::string& name, const std::vector<float>& values) {
    v1::CreateRequest request;
    request.mutable_job()->set_mode(v1::MODE_VARIABLES);
    *request.add_slices() = Vectors({{name, static_cast<int64_t>(values.size())}})[0].ToProto();
    request.mutable_values()->Add(values.begin(), values.end());
    return request;
  }
  std::vector<float> AllValues() {
    return ToVector(server_.JobForLayout(Describe().layout()).value()->shard().store().current());
  }

  test::FakeClock clock_;
  Server server_;
  int64_t config_changes_ = 0;
};

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

TEST_F(ServerTest, AnUnknownScheduleIsNamed) {
  v1::CreateRequest request = TrainingJob();
  request.mutable_job()->mutable_optimizer()->mutable_learning_rate_schedule()->set_name("StepDecay");
  EXPECT_THAT(MessageOf(Create(request).status()), HasSubstr("optimizer SGD: unknown schedule 'StepDecay'"));
}

TEST_F(ServerTest, AnOptimizerWithNormsRefusesADividedBand) {
  for (const auto& [name, clip] :
       {std::pair("Lamb", ""), std::pair("SGD", "clipnorm"), std::pair("SGD", "global_clipnorm")}) {
    v1::CreateRequest request = TrainingJob();
    request.mutable_job()->mutable_optimizer()->set_name(name);
    if (*clip != 0) (*request.mutable_job()->mutable_optimizer()->mutable_hyperparameters())[clip] = 1;
    request.mutable_slices(0)->set_shape(0, 1000);  // bands of 4 rows
    request.mutable_slices(0)->set_row_end(402);
    const absl::Status status = Create(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(MessageOf(status),
                HasSubstr("takes norms, and 'a' is split at rows 0 and 402, not at multiples of 4"));
    request.mutable_slices(0)->set_row_end(400);
    EXPECT_EQ(Create(request).status(), absl::OkStatus());
  }
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

TEST_F(ServerTest, InvalidJobsAreRefusedWithoutEffect) {
  using Change = void (*)(v1::CreateRequest&);
  const Change changes[] = {
      [](v1::CreateRequest& request) { request.mutable_job()->set_mode(v1::MODE_UNSPECIFIED); },
      [](v1::CreateRequest& request) { request.mutable_job()->clear_workers(); },
      [](v1::CreateRequest& request) { request.mutable_job()->clear_servers(); },
      [](v1::CreateRequest& request) { request.mutable_job()->set_lease_seconds(0); },
      [](v1::CreateRequest& request) { request.mutable_job()->set_lease_seconds(1e300); },
      [](v1::CreateRequest& request) { request.mutable_job()->set_replicas_to_aggregate(-1); },
      [](v1::CreateRequest& request) { request.mutable_job()->mutable_optimizer()->set_name("Magic"); },
      [](v1::CreateRequest& request) { *request.add_slices() = request.slices(0); },
      [](v1::CreateRequest& request) { request.mutable_slices(0)->set_row_end(3); },
      [](v1::CreateRequest& request) { request.mutable_slices(0)->set_shape(0, -2); },
      [](v1::CreateRequest& request) { request.mutable_slices(0)->clear_name(); },
  };
  int row = 0;
  for (const Change change : changes) {
    v1::CreateRequest request = TrainingJob();
    change(request);
    EXPECT_EQ(Create(request).status().code(), absl::StatusCode::kInvalidArgument) << "row " << row++;
    EXPECT_EQ(Describe().state(), v1::STATE_EMPTY);
  }
}

TEST_F(ServerTest, AJobThatResumesAtAnImpossiblePositionIsRefused) {
  using Change = void (*)(v1::Progress&);
  const std::pair<const char*, Change> impossible[] = {
      {"version -1", [](v1::Progress& resumed) { resumed.set_version(-1); }},
      {"version 9223372036854775807", [](v1::Progress& resumed) { resumed.set_version(INT64_MAX); }},
      {"worker 1 at position -4",
       [](v1::Progress& resumed) {
         resumed.add_positions(3);
         resumed.add_positions(-4);
       }},
      {"example -5", [](v1::Progress& resumed) { resumed.mutable_data()->set_next(-5); }},
      {"7 unfinished examples",
       [](v1::Progress& resumed) {
         resumed.mutable_data()->set_next(6);
         resumed.mutable_data()->add_open()->set_count(7);
       }},
      {"learning rate of -0.5", [](v1::Progress& resumed) { resumed.set_learning_rate(-0.5f); }},
      {"learning rate of nan", [](v1::Progress& resumed) { resumed.set_learning_rate(std::nanf("")); }},
  };
  for (const auto& [what, change] : impossible) {
    v1::CreateRequest request = TrainingJob();
    change(*request.mutable_job()->mutable_resumed());
    const absl::Status status = Create(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_THAT(MessageOf(status), HasSubstr(what));
  }
}

TEST_F(ServerTest, NamesAndShapesBeyondTheirLimitAreRefused) {
  v1::CreateRequest request = TrainingJob();
  const std::string name(size_t{1} << 20, 'n');
  for (int i = 0; i < 64; ++i) {
    *request.add_slices() = Vectors({{absl::StrCat(i, name), 1}})[0].ToProto();
  }
  EXPECT_THAT(MessageOf(Create(request).status()), HasSubstr("the names and shapes of 65 variables take"));
}

TEST_F(ServerTest, AWorkersNameHasALimit) {
  MakeReady();
  v1::JoinRequest request;
  request.set_task(std::string(257, 'w'));
  EXPECT_THAT(MessageOf(Call(server_, &Server::Join, request).status()), HasSubstr("257 bytes, at most 256"));
}

// [two elements]: 8 bytes; without slots, of two workers: 2 + 3 + 1 times that.
TEST_F(ServerTest, AJobIsRefusedIfItExceedsTheMemoryByOneByte) {
  Server enough({.index = 0, .connect_to_leader = nullptr, .memory_limit = 48}, clock_);
  EXPECT_TRUE(Call(enough, &Server::Create, TrainingJob()).ok());
  Server short_of_it({.index = 0, .connect_to_leader = nullptr, .memory_limit = 47}, clock_);
  EXPECT_EQ(Call(short_of_it, &Server::Create, TrainingJob()).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(short_of_it.ended(), std::nullopt);
}

TEST_F(ServerTest, ARefusalForMemoryListsTheNeeds) {
  Server server({.index = 3, .connect_to_leader = nullptr, .memory_limit = int64_t{4} << 30}, clock_);
  v1::CreateRequest request = TrainingJob();
  request.mutable_job()->mutable_optimizer()->set_name("Adam");
  *request.mutable_slices(0) = Vectors({{"a", int64_t{1} << 28}})[0].ToProto();  // 1 GiB
  EXPECT_EQ(
      Call(server, &Server::Create, request).status(),
      absl::ResourceExhaustedError(
          "ps/3: the job needs 10 GiB and may take 4 GiB (--memory_limit): two versions of the values 2 GiB, "
          "2 slots of Adam 2 GiB, a gradient of each of 2 workers and one that arrives 3 GiB, "
          "a snapshot 3 GiB"));
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

TEST_F(ServerTest, AMarkerWithALongNameIsRefused) {
  MakeReady();
  v1::PlaceMarkerRequest request;
  request.set_token(std::string(kMaxMarkerLength + 1, 'a'));
  EXPECT_EQ(Call(server_, &Server::PlaceMarker, request).status().code(), absl::StatusCode::kInvalidArgument);
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

TEST_F(ServerTest, AWorkerThatTheJobLacksCannotJoin) {
  MakeReady();
  EXPECT_EQ(Join(2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Join(-1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ServerTest, AnIncarnationIsAcceptedOnlyWithTheSealOfAServer) {
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

// The job may be rolled back after the worker has joined at ps/0: the worker joins again.
TEST_F(ServerTest, AnIncarnationOfAnotherGenerationIsRefusedForNow) {
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

TEST_F(ServerTest, WithoutAKeyNoIncarnationIsAccepted) {
  MakeReady();
  v1::JoinRequest request;
  request.set_worker(1);
  request.set_incarnation(Join(1)->incarnation());
  EXPECT_EQ(Call(server_, &Server::Join, request).status().code(), absl::StatusCode::kPermissionDenied);
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

TEST_F(ServerTest, ASecondLiveProcessOfAWorkerIsRefusedAndTheFirstIsNamed) {
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

TEST_F(ServerTest, ASilentProcessLearnsWhichProcessReplacedIt) {
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

TEST_F(ServerTest, AHeartbeatIsAnsweredWithTheAwaitedWorkers) {
  MakeReady();
  ASSERT_TRUE(Join(0).ok());
  EXPECT_EQ(Heartbeat(0)->waiting_for(), "worker/0, worker/1");
  EXPECT_EQ(Heartbeat(0)->server_incarnation(), 5u);
}

TEST_F(ServerTest, AnExpiredLeaseRemovesItsWorkerFromTheRound) {
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

TEST_F(ServerTest, AChangedLearningRateIsReported) {
  MakeReady();
  ASSERT_TRUE(Join(0).ok());
  EXPECT_EQ(Describe().learning_rate(), 0.01f) << "SGD's default";
  EXPECT_TRUE(ChangeConfig(0.5f).ok());
  EXPECT_EQ(Describe().learning_rate(), 0.5f);
  for (float bad : {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(ChangeConfig(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(Describe().learning_rate(), 0.5f);
}

TEST_F(ServerTest, ALearningRateCannotReplaceASchedule) {
  v1::CreateRequest request = TrainingJob();
  auto& schedule = *request.mutable_job()->mutable_optimizer()->mutable_learning_rate_schedule();
  schedule.set_name("PiecewiseConstantDecay");
  schedule.add_values(1);
  server_.OnInitialised(Create(request).value().layout());
  ASSERT_TRUE(Join(0).ok());
  const absl::Status status = ChangeConfig(0.5f);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(status), HasSubstr("PiecewiseConstantDecay"));
}

TEST_F(ServerTest, WithoutAJobAConfigChangeIsRefused) {
  EXPECT_EQ(ChangeConfig(0.5f).code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(Create(Variable("v", {1})).ok());
  EXPECT_EQ(ChangeConfig(0.5f).code(), absl::StatusCode::kFailedPrecondition) << "nothing is trained";
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

TEST_F(ServerTest, OnlyTheNextGenerationReplacesAReadyJob) {
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

TEST_F(ServerTest, AWorkerThatDoesNotRejoinAfterARollbackIsLost) {
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

TEST_F(ServerTest, AJobCreatedAfterAFailedAttemptWaitsForAllWorkers) {
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

TEST_F(ServerTest, ALostWorkerStaysInTheRoundIfRoundsWaitForItsReturn) {
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
