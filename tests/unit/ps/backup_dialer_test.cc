// The stream from a primary to its backup in another process, over each transport.
#include "ps/rpc/backup_dialer.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/mutex.h"
#include "common/net/data_channel/stream/stream.h"
#include "common/net/grpc/unreachable.h"
#include "common/net/security/gate.h"
#include "gmock/gmock.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "ps/rpc/data_channel_service.h"
#include "ps/rpc/service.h"
#include "tests/support/data_sockets.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using testing::HasSubstr;

constexpr int64_t kElements = 600000;  // several frames

// The answers of a backup.
class Answers final : public ReplicationStreamHandler {
 public:
  void OnAnswer(const v1::ReplicationAck& answer) override {
    MutexLock lock(mutex_);
    replicated_ = std::max(replicated_, answer.replicated());
    if (answer.keeper() != 0) keeper_ = answer.keeper();
    changed_.NotifyAll();
  }
  void OnClosed(const absl::Status& status) override {
    MutexLock lock(mutex_);
    EXPECT_FALSE(closed_.has_value());
    closed_ = status;
    changed_.NotifyAll();
  }
  // False if that does not happen within a minute.
  bool AwaitReplicated(uint64_t number) {
    const TimePoint deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    MutexLock lock(mutex_);
    while (replicated_ < number && !closed_.has_value() && changed_.WaitUntil(mutex_, deadline)) {
    }
    return replicated_ >= number;
  }
  // OK if the stream does not end within a minute.
  absl::Status AwaitClosed() {
    const TimePoint deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    MutexLock lock(mutex_);
    while (!closed_.has_value() && changed_.WaitUntil(mutex_, deadline)) {
    }
    return closed_.value_or(absl::OkStatus());
  }
  uint64_t keeper() {
    MutexLock lock(mutex_);
    return keeper_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  uint64_t replicated_ ABSL_GUARDED_BY(mutex_) = 0, keeper_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mutex_);
};

// The process of ps/1, which can have the backup of ps/0's shard.
class BackupProcess {
 public:
  explicit BackupProcess(bool has_data_channel = true, const std::string& token = "")
      : gate_("ps/1", {.token = token}) {
    net::DataListeners listeners = has_data_channel ? test::Listeners() : net::DataListeners();
    const auto make_server = [this, endpoint = listeners.address()](int shard) {
      return std::make_unique<Server>(
          Server::Options{.index = shard,
                          .host_index = 1,
                          .incarnation = 5,
                          .connect_to_leader = [](const v1::Job&, std::shared_ptr<Shard>,
                                                  int64_t) { return std::unique_ptr<SequencerPort>(); },
                          .connect_to_backup = [](const std::string&, int, ReplicationStreamHandler&)
                              -> std::unique_ptr<ReplicationStream> { return nullptr; },
                          .replicates_by_calls = true,
                          .data_endpoint = endpoint},
          clock_);
    };
    shards_.emplace(make_server(1), 1, make_server);
    if (has_data_channel) {
      data_channel_.emplace(*shards_, std::move(listeners), DataChannelService::Options{.incarnation = 5});
    }
    service_ = MakeService(*shards_, {.gate = &gate_});
    grpc::ServerBuilder builder;
    net::ConfigureServer(builder, /*reuse_port=*/false);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    EXPECT_NE(port_, 0);
  }
  ~BackupProcess() {
    shards_->Shutdown();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  Server& backup() { return **shards_->ForBackup(0); }
  Server& own() { return shards_->own(); }

 private:
  test::FakeClock clock_;
  const net::Gate gate_;
  std::optional<HostedShards> shards_;
  std::optional<DataChannelService> data_channel_;
  std::unique_ptr<grpc::Service> service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

BackupDialer Dialer(net::Transport best, const std::string& token = "") {
  return DialBackup({grpc::InsecureChannelCredentials(), token}, best);
}

NumberedItem Origin() {
  NumberedItem origin = {.number = 1, .item = {}};
  v1::ReplicationOrigin& described = *origin.item.body.mutable_origin();
  v1::Job& job = *described.mutable_job();
  job.set_mode(v1::MODE_ASYNC);
  job.set_ps_replication(1);
  job.add_workers("worker/0");
  for (const char* host : {"host:1", "host:2"}) job.add_servers(host);
  job.set_lease_seconds(30);
  job.mutable_optimizer()->set_name("SGD");
  for (const net::Slice& slice : Vectors({{"a", kElements}})) *described.add_slices() = slice.ToProto();
  return origin;
}

class BackupDialerTest : public testing::TestWithParam<net::Transport> {
 protected:
  void Open() { stream_ = Dialer(GetParam())(process_.address(), 0, answers_); }

  BackupProcess process_;
  Answers answers_;
  std::unique_ptr<ReplicationStream> stream_;
};
INSTANTIATE_TEST_SUITE_P(Over, BackupDialerTest,
                         testing::Values(net::Transport::kGrpc, net::Transport::kTcp, net::Transport::kUnix,
                                         net::Transport::kShm));

TEST_P(BackupDialerTest, ItemsArriveWithTheirValues) {
  testing::internal::CaptureStdout();
  Open();
  stream_->Send({Origin()});
  ASSERT_TRUE(answers_.AwaitReplicated(1));
  EXPECT_EQ(answers_.keeper(), 5u);
  auto values = std::make_shared<AlignedBuffer>(kElements);
  for (int64_t i = 0; i < kElements; ++i) values->data()[i] = static_cast<float>(i);
  NumberedItem state = {.number = 2, .item = {.body = {}, .floats = {values}, .state = true}};
  state.item.body.mutable_shard()->set_next_index(1);
  NumberedItem member = {.number = 3, .item = {}};
  member.item.body.mutable_member()->set_incarnation(9);
  stream_->Send({state, member});
  ASSERT_TRUE(answers_.AwaitReplicated(3));
  EXPECT_TRUE(ToVector(process_.backup().hosted_job().job()->shard().store().current()) ==
              std::vector<float>(values->span().begin(), values->span().end()));
  stream_.reset();
  EXPECT_EQ(values.use_count(), 2) << "only the test has it";
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              HasSubstr(absl::StrCat("to the backup of ps/0's shard at ", process_.address(), ": by ",
                                     net::InWords(GetParam()))));
}

TEST_P(BackupDialerTest, TheReasonForTheEndArrives) {
  Open();
  stream_->Send({Origin()});
  ASSERT_TRUE(answers_.AwaitReplicated(1));
  NumberedItem again = Origin();
  again.number = 2;
  stream_->Send({again});
  const absl::Status closed = answers_.AwaitClosed();
  EXPECT_EQ(closed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(closed.message(), HasSubstr("described the job twice"));
}

TEST_P(BackupDialerTest, AStreamThatAnotherOneReplacesEndsWithTheReason) {
  Open();
  stream_->Send({Origin()});
  ASSERT_TRUE(answers_.AwaitReplicated(1));
  Answers others;
  const auto other = Dialer(GetParam())(process_.address(), 0, others);
  other->Send({Origin()});
  ASSERT_TRUE(others.AwaitReplicated(1));
  const absl::Status closed = answers_.AwaitClosed();
  EXPECT_EQ(closed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(closed.message(), HasSubstr("another stream feeds this backup now"));
}

TEST_P(BackupDialerTest, AnEndBeforeTheRouteIsKnownIsReportedOnce) {
  for (int i = 0; i < 20; ++i) {
    Answers answers;
    Dialer(GetParam())(process_.address(), 0, answers).reset();
    EXPECT_EQ(answers.AwaitClosed().code(), absl::StatusCode::kUnavailable);
  }
}

TEST(BackupDialer, AProcessWithoutADataChannelIsReachedOverGrpc) {
  BackupProcess process(/*has_data_channel=*/false);
  Answers answers;
  const auto stream = Dialer(net::Transport::kShm)(process.address(), 0, answers);
  stream->Send({Origin()});
  EXPECT_TRUE(answers.AwaitReplicated(1));
}

TEST(BackupDialer, AProcessThatIsGoneRefusesTheConnection) {
  const int port = net::ListenByTcp("127.0.0.1", 0).value().port;  // nothing listens there any more
  Answers answers;
  const auto stream = Dialer(net::Transport::kShm)(absl::StrCat("127.0.0.1:", port), 0, answers);
  stream->Send({Origin()});
  EXPECT_EQ(net::WhyUnreachable(answers.AwaitClosed()), "connection refused");
}

TEST(BackupDialer, AProcessThatHasNoBackupOfTheShardSaysSo) {
  BackupProcess process;
  process.backup();  // of ps/0's shard, and of no other
  Answers answers;
  const auto stream = Dialer(net::Transport::kShm)(process.address(), 2, answers);
  EXPECT_EQ(answers.AwaitClosed().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(BackupDialer, ACallerWithoutTheTokenDoesNotLearnTheDataChannel) {
  BackupProcess process(/*has_data_channel=*/true, "the token of the job");
  Answers answers;
  const auto stream = Dialer(net::Transport::kShm, "another token")(process.address(), 0, answers);
  stream->Send({Origin()});
  EXPECT_EQ(answers.AwaitClosed().code(), absl::StatusCode::kUnauthenticated);
  Answers admitted;
  const auto other = Dialer(net::Transport::kShm, "the token of the job")(process.address(), 0, admitted);
  other->Send({Origin()});
  EXPECT_TRUE(admitted.AwaitReplicated(1));
}

class Stranger final : public net::DataReceiver {
 public:
  absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char>, size_t) override {
    return absl::Span<char>();
  }
  absl::Status Complete(net::Payload) override { return absl::OkStatus(); }
  void OnEnd(const absl::Status&) override {}
};

TEST(BackupDialer, AStreamWithoutTheKeyIsRefused) {
  BackupProcess process(/*has_data_channel=*/true, "the token of the job");
  const net::DataEndpoint& endpoint = process.own().data_endpoint();
  Stranger stranger;
  for (const bool knows_the_key : {false, true}) {
    FileDescriptor socket = net::ConnectLocally(endpoint.local_socket).value();
    const auto stream = net::DataStream::Connect(std::move(socket), /*shared=*/false,
                                                 {.incarnation = 5,
                                                  .key = knows_the_key ? endpoint.key : std::string(16, 'x'),
                                                  .target = {.shard = 0, .replicates = true}},
                                                 stranger);
    EXPECT_EQ(stream.ok(), knows_the_key);
  }
}

}  // namespace
}  // namespace cairn::ps
