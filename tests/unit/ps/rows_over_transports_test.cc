// Rows of a table between a training client and servers, over gRPC and each data channel.
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/training/training_client.h"
#include "client/transport/data_channel_transport.h"
#include "client/transport/grpc_transport.h"
#include "common/net/grpc/grpc_util.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "ps/rpc/data_channel_service.h"
#include "ps/rpc/service.h"
#include "tests/support/data_sockets.h"
#include "tests/unit/ps/counting_table.h"

namespace cairn::ps {
namespace {

constexpr int kServers = 2;
constexpr int64_t kRowElements = 16;

// Row r is on server r mod 2.
class Parity final : public net::Partitioner {
 public:
  int ServerOf(int64_t row) const override { return static_cast<int>(row % kServers); }
};

// A server that stores tables, at a port of this host.
class TableServer {
 public:
  explicit TableServer(int index)
      : shards_(std::make_unique<Server>(Server::Options{.index = index,
                                                         .incarnation = 5,
                                                         .connect_to_leader = nullptr,
                                                         .tables = &kinds_,
                                                         .data_endpoint = listeners_.address()},
                                         clock_),
                index, nullptr),
        service_(MakeService(shards_)),
        data_channel_(shards_, std::move(listeners_), {.incarnation = 5}) {
    grpc::ServerBuilder builder;
    net::ConfigureServer(builder, /*reuse_port=*/false);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(service_.get());
    grpc_ = builder.BuildAndStart();
  }
  ~TableServer() { grpc_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5)); }

  std::unique_ptr<client::ServerStub> Stub(net::Transport transport) const {
    return client::MakeDataChannelStub(
        client::MakeGrpcStub(absl::StrCat("127.0.0.1:", port_), {grpc::InsecureChannelCredentials(), ""}),
        {.transport = transport});
  }

 private:
  const CountingTables kinds_;
  const SteadyClock clock_;
  net::DataListeners listeners_ = test::Listeners();
  HostedShards shards_;
  const std::unique_ptr<grpc::Service> service_;
  DataChannelService data_channel_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> grpc_;
};

struct Case {
  net::Transport transport;
  v1::Encoding wire;
};

class RowsOverTransports : public testing::TestWithParam<Case> {
 protected:
  // Each server has its own log.
  static v1::Job Job() {
    v1::Job job;
    job.set_run_id("rows");
    job.set_mode(v1::MODE_ASYNC);
    job.set_model_sha256("0123");
    job.add_workers("worker/0");
    for (int server = 0; server < kServers; ++server) job.add_servers(absl::StrCat("host:", server + 1));
    job.mutable_optimizer()->set_name("SGD");
    (*job.mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = 1;
    job.set_batch_size(1);
    job.set_epochs(1);
    job.set_lease_seconds(30);
    job.set_wire(GetParam().wire);
    v1::Table& table = *job.add_tables();
    table.set_name("t");
    table.set_kind("counting");
    table.set_row_elements(kRowElements);
    return job;
  }
};
INSTANTIATE_TEST_SUITE_P(Over, RowsOverTransports,
                         testing::Values(Case{net::Transport::kGrpc, v1::ENCODING_FLOAT32},
                                         Case{net::Transport::kTcp, v1::ENCODING_FLOAT32},
                                         Case{net::Transport::kUnix, v1::ENCODING_FLOAT32},
                                         Case{net::Transport::kShm, v1::ENCODING_FLOAT32},
                                         Case{net::Transport::kGrpc, v1::ENCODING_BFLOAT16},
                                         Case{net::Transport::kShm, v1::ENCODING_BFLOAT16}));

TEST_P(RowsOverTransports, StepsPushAndBringRows) {
  std::vector<std::unique_ptr<TableServer>> servers;
  std::vector<std::unique_ptr<client::ServerStub>> stubs;
  for (int server = 0; server < kServers; ++server) {
    servers.push_back(std::make_unique<TableServer>(server));
    stubs.push_back(servers.back()->Stub(GetParam().transport));
  }
  client::WireMetrics wire;
  client::TrainingClient client(
      client::Connection::Open(std::move(stubs), {.task = "worker/0"}).value(), {{"a", Shape({2}), 0}},
      {.task = "worker/0",
       .step_timeout = std::chrono::seconds(60),
       .split_bytes = 4,
       .wire = &wire,
       .make_partitioner = [](const v1::Table&, int) { return std::make_unique<Parity>(); }});
  client::FirstValues first({0, 0});
  ASSERT_EQ(client.Initialise(Job(), first), absl::OkStatus());
  ASSERT_EQ(client.WaitReady(Job()), absl::OkStatus());
  ASSERT_EQ(client.Join(), absl::OkStatus());

  constexpr int64_t kRows = 20'000;  // several frames for each server
  std::vector<int64_t> keys(kRows);
  std::iota(keys.begin(), keys.end(), 1'000'000'000'000);
  std::vector<float> gradients(static_cast<size_t>(kRows * kRowElements)), rows(gradients.size());
  // Exact in 16 bits.
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(i / 16 % 64);
  const std::vector<float> zeros(2);
  int64_t bytes = 0;
  for (int step = 1; step <= 3; ++step) {
    bytes = -wire.push_bytes.value() - wire.pull_bytes.value();
    client::Step& begun = client.steps().BeginStep(zeros, 1);
    ASSERT_EQ(client.rows()->WantRows({{.table = 1, .keys = keys, .rows = absl::MakeSpan(rows)}}),
              absl::OkStatus());
    ASSERT_EQ(client.rows()->PushRows({{.table = 1, .keys = keys, .gradients = gradients}}),
              absl::OkStatus());
    begun.Announce(0);
    const auto result = begun.Finish();
    ASSERT_TRUE(result.ok()) << result.status();
    for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], static_cast<float>(step) * gradients[i]) << i;
    bytes += wire.push_bytes.value() + wire.pull_bytes.value();
  }
  // A key, a gradient and a row for each row, in a step that goes on with the rows that it wanted.
  const double of_float32 = kRows * (8 + 8 * kRowElements);
  EXPECT_LE(static_cast<double>(bytes),
            (GetParam().wire == v1::ENCODING_FLOAT32 ? 1.05 : 0.55) * of_float32 + 64 * kServers);

  std::fill(rows.begin(), rows.end(), -1.0f);
  ASSERT_EQ(client.rows()->ReadRows({{.table = 1, .keys = keys, .rows = absl::MakeSpan(rows)}}),
            absl::OkStatus());
  for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], 3 * gradients[i]) << i;
  client.Leave(v1::LEAVE_REASON_UNSPECIFIED, "");
}

}  // namespace
}  // namespace cairn::ps
