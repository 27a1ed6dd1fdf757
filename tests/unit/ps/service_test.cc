// The service over real gRPC, and sessions over each transport, with a client that delays reading
// its answers.
#include "ps/rpc/service.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cairn/v1/parameter_server.grpc.pb.h"
#include "client/transport/data_channel_transport.h"
#include "client/transport/grpc_transport.h"
#include "common/core/mutex.h"
#include "common/net/grpc/grpc_util.h"
#include "common/system/thread.h"
#include "gmock/gmock.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "ps/rpc/data_channel_service.h"
#include "tests/support/data_sockets.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

constexpr int64_t kLargeElements = int64_t{64} << 10;  // 256 KiB: a few answers fill gRPC's buffers
constexpr uint64_t kRequests = 400;

// Reads nothing until it is opened; then counts the answers.
class StandingReader final : public client::FrameHandler {
 public:
  absl::Span<char> BeginFrame(const v1::ServerHeader& header, size_t) override {
    header_ = &header;
    return {};
  }
  void CompleteFrame(net::Payload payload) override {
    MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);  // until the test opens it
    if (header_->has_chunk()) bytes_ += net::PayloadBytes(payload);
    if (header_->has_done()) done_.push_back(header_->request_id());
    changed_.NotifyAll();
  }
  void OnClosed(const absl::Status& status) override {
    MutexLock lock(mutex_);
    closed_ = status;
    changed_.NotifyAll();
  }
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  // False if that does not happen within a minute.
  bool AwaitDone(size_t count) {
    const TimePoint deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    MutexLock lock(mutex_);
    while (done_.size() < count && closed_.ok() && changed_.WaitUntil(mutex_, deadline)) {
    }
    return done_.size() >= count;
  }
  // OK if the stream does not end within a minute.
  absl::Status AwaitClosed() {
    const TimePoint deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    MutexLock lock(mutex_);
    while (closed_.ok() && changed_.WaitUntil(mutex_, deadline)) {
    }
    return closed_;
  }
  int64_t bytes() {
    MutexLock lock(mutex_);
    return bytes_;
  }
  std::vector<uint64_t> done() {
    MutexLock lock(mutex_);
    return done_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  const v1::ServerHeader* header_ = nullptr;  // of the frame that has begun
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> done_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

// A service under a port of this host.
class Front {
 public:
  explicit Front(grpc::Service& service) {
    grpc::ServerBuilder builder;
    net::ConfigureServer(builder, /*reuse_port=*/false);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service);
    server_ = builder.BuildAndStart();
    EXPECT_NE(port_, 0);
  }
  ~Front() { Stop(std::chrono::seconds(5)); }

  // Calls that have not ended by then are cancelled.
  void Stop(std::chrono::milliseconds limit) { server_->Shutdown(std::chrono::system_clock::now() + limit); }
  // A client's stub. `shard`: the index of a further shard that the process serves.
  std::unique_ptr<client::ServerStub> Stub(std::optional<int> shard = std::nullopt,
                                           const std::string& token = "") const {
    return client::MakeGrpcStub(absl::StrCat("127.0.0.1:", port_),
                                {grpc::InsecureChannelCredentials(), token}, shard);
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class ServiceTest : public testing::TestWithParam<net::Transport> {};
INSTANTIATE_TEST_SUITE_P(Over, ServiceTest,
                         testing::Values(net::Transport::kGrpc, net::Transport::kTcp, net::Transport::kUnix,
                                         net::Transport::kShm));

TEST_P(ServiceTest, AClientThatReadNoAnswersGetsAllInOrder) {
  test::FakeClock clock;
  net::DataListeners listeners = test::Listeners();
  HostedShards shards(std::make_unique<Server>(Server::Options{.index = 0,
                                                               .incarnation = 5,
                                                               .connect_to_leader = nullptr,
                                                               .data_endpoint = listeners.address()},
                                               clock),
                      0, nullptr);
  Server& server = shards.own();
  DataChannelService data_channel(shards, std::move(listeners), {.incarnation = 5});
  v1::CreateRequest create;
  create.mutable_job()->set_mode(v1::MODE_VARIABLES);
  *create.add_slices() = Vectors({{"a", kLargeElements}})[0].ToProto();
  create.mutable_values()->Resize(kLargeElements, 1.0f);
  uint64_t layout = 0;
  server.Create(create,
                [&](absl::StatusOr<v1::CreateResponse> response) { layout = response.value().layout(); });

  const auto service = MakeService(shards);
  const Front front(*service);

  StandingReader reader;
  Mutex mutex;
  std::string by;
  const auto stub =
      client::MakeDataChannelStub(front.Stub(), {.transport = GetParam(), .say = [&](const std::string& how) {
                                                   MutexLock lock(mutex);
                                                   by = how;
                                                 }});
  v1::ConnectRequest request;
  request.set_protocol(net::kProtocolVersion);
  v1::ConnectResponse response;
  ASSERT_EQ(stub->Call(request, &response, std::chrono::seconds(60)), absl::OkStatus());
  auto stream = stub->streams().Open(reader, /*stopped=*/nullptr);
  std::vector<uint64_t> asked;
  for (uint64_t id = 1; id <= kRequests; ++id) {
    v1::ClientHeader header;
    header.set_request_id(id);
    header.mutable_read()->set_layout(layout);
    stream->Send(header, {});
    asked.push_back(id);
  }
  reader.Open();
  EXPECT_TRUE(reader.AwaitDone(kRequests));
  EXPECT_EQ(reader.done(), asked);
  EXPECT_EQ(reader.bytes(), static_cast<int64_t>(kRequests) * kLargeElements * 4);
  stream.reset();
  EXPECT_EQ(by, net::InWords(GetParam()));
}

// A client of a server that reports `address` as its data channel.
class ClientWith {
 public:
  explicit ClientWith(const net::DataEndpoint& address, client::DataChannelOptions options = {})
      : shards_(std::make_unique<Server>(
                    Server::Options{
                        .index = 0, .incarnation = 5, .connect_to_leader = nullptr, .data_endpoint = address},
                    clock_),
                0, nullptr) {
    options.say = [this](const std::string& how) { by_ = how; };
    stub_ = client::MakeDataChannelStub(front_.Stub(), options);
  }

  // Connects, opens a stream, and returns its transport.
  std::string OpenStream() {
    v1::ConnectRequest request;
    request.set_protocol(net::kProtocolVersion);
    v1::ConnectResponse response;
    EXPECT_EQ(stub_->Call(request, &response, std::chrono::seconds(60)), absl::OkStatus());
    StandingReader reader;
    stub_->streams().Open(reader, /*stopped=*/nullptr).reset();
    return by_;
  }

 private:
  test::FakeClock clock_;
  HostedShards shards_;
  const std::unique_ptr<grpc::Service> service_ = MakeService(shards_);
  const Front front_{*service_};
  std::string by_;
  std::unique_ptr<client::ServerStub> stub_;
};

std::string WayTo(const net::DataEndpoint& address) {
  return ClientWith(address).OpenStream();
}

TEST(DataChannelService, EachShardOfTheProcessIsReached) {
  test::FakeClock clock;
  net::DataListeners listeners = test::Listeners();
  const auto make_server = [&, address = listeners.address()](int shard) {
    return std::make_unique<Server>(
        Server::Options{
            .index = shard, .incarnation = 5, .connect_to_leader = nullptr, .data_endpoint = address},
        clock);
  };
  HostedShards shards(make_server(1), 1, make_server);
  Server& other = **shards.ForBackup(0);
  DataChannelService data_channel(shards, std::move(listeners), {.incarnation = 5});
  std::map<int, uint64_t> layouts;
  for (Server* server : {&shards.own(), &other}) {
    v1::CreateRequest create;
    create.mutable_job()->set_mode(v1::MODE_VARIABLES);
    const int64_t size = server == &other ? 3 : 2;
    *create.add_slices() = Vectors({{"a", size}})[0].ToProto();
    create.mutable_values()->Resize(static_cast<int>(size), 1.0f);
    server->Create(create, [&](absl::StatusOr<v1::CreateResponse> response) {
      layouts[server == &other ? 0 : 1] = response.value().layout();
    });
  }
  const auto service = MakeService(shards);
  const Front front(*service);
  for (const int shard : {0, 1}) {
    std::string by;
    const auto stub = client::MakeDataChannelStub(
        front.Stub(shard), {.shard = shard, .say = [&by](const std::string& how) { by = how; }});
    v1::ConnectRequest request;
    request.set_protocol(net::kProtocolVersion);
    request.set_server(shard);
    v1::ConnectResponse response;
    ASSERT_EQ(stub->Call(request, &response, std::chrono::seconds(60)), absl::OkStatus());
    StandingReader reader;
    reader.Open();
    auto stream = stub->streams().Open(reader, /*stopped=*/nullptr);
    v1::ClientHeader header;
    header.set_request_id(1);
    header.mutable_read()->set_layout(layouts[shard]);
    stream->Send(header, {});
    EXPECT_TRUE(reader.AwaitDone(1));
    EXPECT_EQ(reader.bytes(), shard == 0 ? 12 : 8);
    stream.reset();
    EXPECT_EQ(by, "shared memory");
  }
}

TEST(DataChannelService, GrpcIsUsedIfSocketAndPortCannotBeReached) {
  const int port = net::ListenByTcp("127.0.0.1", 0).value().port;  // nothing listens there any more
  EXPECT_EQ(WayTo({.local_socket = "cairn-without-a-listener", .port = port}), "gRPC");
}

// A port to which packets are dropped, here because its queue of connections is full.
TEST(DataChannelService, APortThatDoesNotAnswerIsNotTriedForAWhile) {
  const FileDescriptor deaf(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(deaf.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(deaf.get(), 0), 0);
  ASSERT_EQ(getsockname(deaf.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const int port = ntohs(address.sin_port);
  const FileDescriptor fills = net::ConnectByTcp("127.0.0.1", port, std::chrono::seconds(60)).value();
  const auto tried = [&deaf] { return net::AcceptByTcp(deaf).valid(); };

  ClientWith patient({.port = port}, {.try_again_after = std::chrono::hours(24)});
  ClientWith impatient({.port = port}, {.try_again_after = Duration(0)});
  EXPECT_EQ(patient.OpenStream(), "gRPC");
  EXPECT_EQ(impatient.OpenStream(), "gRPC");
  while (tried()) {
  }
  EXPECT_EQ(patient.OpenStream(), "gRPC");
  EXPECT_FALSE(tried());
  std::atomic<bool> ended{false};
  std::atomic<int> tries{0};
  const Thread answers("answers", [&] {
    while (!ended) {
      const FileDescriptor caller = net::AcceptByTcp(deaf);
      if (caller.valid()) ++tries;  // before the caller is disconnected: then it continues
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_EQ(impatient.OpenStream(), "gRPC");
  EXPECT_GT(tries, 0);
  ended = true;
}

// A server that offers a data channel.
struct Listening {
  explicit Listening(DataChannelService::Options options)
      : data_channel(shards, std::move(listeners), options) {}

  test::FakeClock clock;
  HostedShards shards{
      std::make_unique<Server>(Server::Options{.index = 0, .connect_to_leader = nullptr}, clock), 0, nullptr};
  net::DataListeners listeners = test::Listeners();
  const net::DataEndpoint address = listeners.address();
  DataChannelService data_channel;
};

TEST(DataChannelService, ThePortIsUsedIfTheSocketCannotBeReached) {
  const Listening server({.incarnation = 5});
  EXPECT_EQ(WayTo({.local_socket = "cairn-without-a-listener",
                   .port = server.address.port,
                   .key = server.address.key}),
            "TCP");
}

TEST(DataChannelService, ClientsUseTheSocketIfSharedMemoryIsNotAllowed) {
  const Listening server({.incarnation = 5, .shared_memory = false});
  EXPECT_EQ(WayTo(server.address), "a Unix socket");
}

TEST(DataChannelService, AServiceOfAnotherIncarnationIsNotUsed) {
  const Listening server({.incarnation = 6});
  EXPECT_EQ(WayTo(server.address), "gRPC");
}

TEST(DataChannelService, AStreamWithoutTheKeyFromGrpcIsRefused) {
  const Listening server({.incarnation = 5});
  net::DataEndpoint address = server.address;
  EXPECT_EQ(address.key.size(), 16u);
  address.key = std::string(16, 'x');
  EXPECT_EQ(WayTo(address), "gRPC");
  address.key.clear();
  EXPECT_EQ(WayTo(address), "gRPC");
}

TEST(DataChannelService, ASessionBeyondTheLimitUsesGrpc) {
  const Listening server({.incarnation = 5, .most_sessions = 0});
  EXPECT_EQ(WayTo(server.address), "gRPC");
}

// Over real gRPC, with a token.
class TokenTest : public testing::Test {
 protected:
  TokenTest()
      : gate_("ps/0", {.token = "the token of the job"}),
        shards_(std::make_unique<Server>(Server::Options{.index = 0, .connect_to_leader = nullptr}, clock_),
                0, nullptr),
        service_(MakeService(shards_, {.gate = &gate_})),
        front_(*service_) {}

  absl::Status ConnectWith(const std::string& token) {
    v1::ConnectRequest request;
    request.set_protocol(net::kProtocolVersion);
    v1::ConnectResponse response;
    return front_.Stub({}, token)->Call(request, &response, std::chrono::seconds(10));
  }

  test::FakeClock clock_;
  net::Gate gate_;
  HostedShards shards_;
  std::unique_ptr<grpc::Service> service_;
  Front front_;
};

TEST_F(TokenTest, ACallerWithTheTokenIsAdmitted) {
  EXPECT_EQ(ConnectWith("the token of the job"), absl::OkStatus());
}

TEST_F(TokenTest, ACallerWithoutATokenLearnsWhatToDo) {
  const absl::Status refused = ConnectWith("");
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(refused.message(),
            "ps/0 wants the job token, and none was given: give --job_token_file or CAIRN_JOB_TOKEN, the "
            "same as for ps/0");
}

TEST_F(TokenTest, ACallerWithAnotherTokenLearnsThatItDiffers) {
  for (const char* token : {"the token of a job", "the token of the jo"}) {
    const absl::Status refused = ConnectWith(token);
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated) << token;
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("is not the one of ps/0"));
  }
}

TEST_F(TokenTest, EveryCallAndStreamNeedsTheToken) {
  const auto stub = front_.Stub();
  v1::FinishResponse finished;
  EXPECT_EQ(stub->Call(v1::FinishRequest(), &finished, std::chrono::seconds(10)).code(),
            absl::StatusCode::kUnauthenticated);
  v1::CreateResponse created;
  EXPECT_EQ(stub->Call(v1::CreateRequest(), &created, std::chrono::seconds(10)).code(),
            absl::StatusCode::kUnauthenticated);
  StandingReader reader;
  reader.Open();
  const auto stream = stub->streams().Open(reader, /*stopped=*/nullptr);
  EXPECT_EQ(reader.AwaitClosed().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(shards_.own().ended(), std::nullopt) << "no call has ended the server";
}

// Never answers Wait, like a server whose condition does not become true.
class SilentService final : public v1::ParameterServer::Service {
 public:
  grpc::Status Wait(grpc::ServerContext* context, const v1::WaitRequest*, v1::WaitResponse*) override {
    {
      MutexLock lock(mutex_);
      asked_ = true;
      changed_.NotifyAll();
    }
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return grpc::Status::CANCELLED;
  }
  void AwaitAsked() {
    MutexLock lock(mutex_);
    while (!asked_) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST(GrpcStub, ACallCancelledByAStoppingServerMayBeRepeated) {
  SilentService service;
  Front front(service);
  const auto stub = front.Stub();
  Thread stops("stops", [&] {
    service.AwaitAsked();
    front.Stop(std::chrono::milliseconds(0));
  });
  v1::WaitResponse response;
  const absl::Status status = stub->Call(v1::WaitRequest(), &response, std::chrono::seconds(60));
  stops.Join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

// A worker joins at a process that served the shard before it was restarted: it must search for the
// shard again.
TEST(Service, ACallForAShardThatIsNotHereIsUnavailable) {
  test::FakeClock clock;
  HostedShards shards(std::make_unique<Server>(
                          Server::Options{.index = 1, .incarnation = 5, .connect_to_leader = nullptr}, clock),
                      1, nullptr);
  const auto service = MakeService(shards);
  const Front front(*service);
  const auto stub = front.Stub(/*shard=*/0);
  v1::JoinResponse joined;
  EXPECT_EQ(stub->Call(v1::JoinRequest(), &joined, std::chrono::seconds(60)),
            absl::UnavailableError("ps/1 does not serve ps/0's shard now"));
  v1::ConnectRequest request;
  request.set_protocol(net::kProtocolVersion);
  v1::ConnectResponse response;
  EXPECT_EQ(stub->Call(request, &response, std::chrono::seconds(60)).code(), absl::StatusCode::kNotFound)
      << "the answer about the host of the shard";
}

}  // namespace
}  // namespace cairn::ps
