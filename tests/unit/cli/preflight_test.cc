// Each test introduces one fault, which must be the only finding, named and with a remedy.
#include "cli/preflight/preflight.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cairn/v1/inspector.grpc.pb.h"
#include "common/net/grpc/grpc_util.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "tests/support/source_dir.h"

namespace cairn::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr double kNow = 1'700'000'000;

// A server on its own port whose status the test sets.
class FakeServer final : public v1::Inspector::Service {
 public:
  FakeServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    status.set_protocol(net::kProtocolVersion);
    status.set_state(v1::STATE_EMPTY);
    status.set_unix_seconds(kNow);
  }
  ~FakeServer() override { server_->Shutdown(std::chrono::system_clock::now()); }
  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*, v1::ServerStatus* answer) override {
    *answer = status;
    return grpc::Status::OK;
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  v1::ServerStatus status;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// A listening socket that never answers, or a bound socket that does not listen.
class Port {
 public:
  explicit Port(bool listens) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    if (listens) {
      EXPECT_EQ(listen(fd_, 1), 0);
    }
    port_ = ntohs(address.sin_port);
  }
  ~Port() { close(fd_); }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const int fd_;
  int port_ = 0;
};

// Two healthy servers, a worker, a model, and free disk space.
class PreflightTest : public testing::Test {
 protected:
  PreflightTest() : directory_(testing::TempDir() + "cairn_preflight_XXXXXX") {
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    examination_.backends = {
        .count_gpus = [] { return absl::NotFoundError("no GPU: this machine has no driver"); },
        .describe_gpu = [](int) { return absl::NotFoundError("none"); },
        .make_gpu = [](const kernels::CudaOptions&) { return absl::NotFoundError("none"); },
        .make_cpu = worker::TheBackends().make_cpu};
    examination_.unix_seconds = [] { return kNow; };
    examination_.free_bytes = [](const std::string&) { return int64_t{1} << 40; };
    examination_.options.model = InSource("deploy/examples/mnist_mlp.json");
    examination_.options.train_dir = directory_ + "/run";
    examination_.timeout = std::chrono::seconds(20);
    UseCluster({servers_[0].address(), servers_[1].address()});
    for (int i = 0; i < 2; ++i) {
      servers_[i].status.set_task(absl::StrCat("ps/", i));
      servers_[i].status.set_cluster_hash(examination_.cluster.spec.Hash());
    }
  }
  ~PreflightTest() override { std::filesystem::remove_all(directory_); }

  void UseCluster(const std::vector<std::string>& servers) {
    net::ClusterFlags flags;
    flags.ps_hosts = servers;
    flags.worker_hosts = {"127.0.0.1:1"};
    auto cluster = net::ResolveCluster(flags, nullptr, /*require_task=*/false);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    examination_.cluster = *std::move(cluster);
  }
  // "ps/1: what" of each fault.
  std::vector<std::string> Faults() const {
    std::vector<std::string> faults;
    for (const Finding& finding : Examine(examination_)) {
      if (!finding.fault) continue;
      EXPECT_FALSE(finding.remedy.empty()) << finding.what;
      faults.push_back(absl::StrCat(finding.subject, ": ", finding.what));
    }
    return faults;
  }

  std::string directory_;
  FakeServer servers_[2];
  Examination examination_;
};

TEST_F(PreflightTest, TooFewDescriptorsAreAFault) {
  examination_.descriptor_limit = 52;  // 40, and 12 for each server or worker
  EXPECT_THAT(Faults(),
              ElementsAre("descriptors: up to 52 files may be open (ulimit -Hn), about 64 are needed"));
  examination_.cluster.self = {"ps", 0};  // which has one worker
  EXPECT_THAT(Faults(), Not(Contains(HasSubstr("descriptors"))));
}

TEST_F(PreflightTest, AHealthyClusterHasNoFaults) {
  EXPECT_THAT(Faults(), IsEmpty());
  const std::string text = AsText(Examine(examination_));
  EXPECT_THAT(text, HasSubstr("no faults\n"));
  EXPECT_THAT(text, HasSubstr("plan"));
  EXPECT_THAT(text, HasSubstr("times the mean"));
}

TEST_F(PreflightTest, EmbeddingTablesAreNamed) {
  examination_.options.model = InSource("deploy/examples/ratings.json");
  examination_.options.embedding.tables = "users";
  examination_.options.embedding.dynamic_tables = "items";
  examination_.options.embedding.optimizer = "adagrad";
  examination_.memory_limit = 1 << 30;
  EXPECT_THAT(Faults(), IsEmpty());
  const std::string text = AsText(Examine(examination_));
  EXPECT_THAT(text, HasSubstr("users/embeddings: 1,000,000 rows of 16 with Adagrad"));
  EXPECT_THAT(text, HasSubstr("items/embeddings: rows of any id of 16 with Adagrad"));
  EXPECT_THAT(text, HasSubstr("on each server, of 1 GiB on ps/0; besides, the rows of tables of any id"));
}

TEST_F(PreflightTest, ATableThatDoesNotFitAServerIsAFault) {
  examination_.options.model = InSource("deploy/examples/ratings.json");
  examination_.options.embedding.tables = "all";
  servers_[0].status.set_memory_limit_bytes(1 << 30);
  servers_[1].status.set_memory_limit_bytes(50'000);
  EXPECT_THAT(Faults(),
              ElementsAre(testing::AllOf(StartsWith("memory: ps/1: the job needs "),
                                         HasSubstr("(--memory_limit)"), HasSubstr(", other tables "))));
}

TEST_F(PreflightTest, FlagsThatTrainingRefusesAreAFault) {
  examination_.options.embedding.staleness = 2;
  EXPECT_THAT(Faults(), ElementsAre(testing::AllOf(StartsWith("job: "), HasSubstr("--embedding_staleness"))));
  examination_.options.embedding = {};
  examination_.options.embedding.tables = "all";
  EXPECT_THAT(Faults(), ElementsAre("job: --embedding_tables: the model has no Embedding layer"));
}

TEST_F(PreflightTest, AServerThatIsDownIsAFault) {
  const Port nobody(/*listens=*/false);
  UseCluster({servers_[0].address(), nobody.address()});
  servers_[0].status.set_cluster_hash(0);
  EXPECT_THAT(Faults(), ElementsAre(absl::StrCat("ps/1: ", nobody.address(), ": connection refused")));
}

TEST_F(PreflightTest, SwappedPortsOfServersAreAFault) {
  UseCluster({servers_[1].address(), servers_[0].address()});
  EXPECT_THAT(Faults(),
              ElementsAre(absl::StrCat("ps/0: ", servers_[1].address(), " identifies itself as ps/1"),
                          absl::StrCat("ps/1: ", servers_[0].address(), " identifies itself as ps/0")));
}

TEST_F(PreflightTest, AnAddressOfTwoTasksIsAFault) {
  const std::string port = servers_[0].address().substr(servers_[0].address().find(':'));
  UseCluster({servers_[0].address(), "localhost" + port});
  servers_[0].status.set_cluster_hash(0);
  EXPECT_THAT(Faults(),
              ElementsAre(absl::StrCat("ps/1: localhost", port, " is 127.0.0.1", port, ", and so is ps/0")));
}

TEST_F(PreflightTest, AnUnresolvableHostIsAFault) {
  UseCluster({servers_[0].address(), "no-such-host.invalid:2222"});
  servers_[0].status.set_cluster_hash(0);
  EXPECT_THAT(Faults(), ElementsAre(StartsWith("ps/1: 'no-such-host.invalid' cannot be resolved: ")));
}

TEST_F(PreflightTest, AServerOfAnotherClusterIsAFault) {
  servers_[1].status.set_cluster_hash(7);
  EXPECT_THAT(Faults(),
              ElementsAre(StartsWith("ps/1: belongs to another cluster: its servers' addresses hash to 7")));
}

TEST_F(PreflightTest, AnotherProtocolVersionIsAFault) {
  servers_[1].status.set_protocol(99);
  servers_[1].status.set_program_version("9.0.0");
  EXPECT_THAT(Faults(),
              ElementsAre(absl::StrCat("ps/1: speaks protocol 99 (version 9.0.0), this program speaks ",
                                       net::kProtocolVersion)));
}

TEST_F(PreflightTest, AFullDiskIsAFault) {
  examination_.free_bytes = [](const std::string&) { return int64_t{4096}; };
  EXPECT_THAT(Faults(), ElementsAre(StartsWith("train_dir: the disk is too full: 4.0 KiB free in ")));
}

TEST_F(PreflightTest, AFileSystemWithoutSpaceIsAFault) {
  examination_.free_bytes = [](const std::string&) { return int64_t{0}; };
  EXPECT_THAT(Faults(), ElementsAre(StartsWith("train_dir: nothing can be stored there: 0 B free in ")));
}

TEST_F(PreflightTest, UnreadableDataIsAFault) {
  examination_.options.data.path = directory_ + "/nowhere";
  EXPECT_THAT(Faults(), ElementsAre(testing::AllOf(StartsWith("data: "), HasSubstr("/nowhere"))));
}

TEST_F(PreflightTest, AnInvalidModelIsAFault) {
  examination_.options.model = directory_ + "/model.json";
  std::ofstream(examination_.options.model)
      << R"({"config": {"layers": [{"class_name": "Dance", "config": {}}]}})";
  EXPECT_THAT(Faults(), ElementsAre(testing::AllOf(StartsWith("model: "), HasSubstr("Dance"))));
}

TEST_F(PreflightTest, AModelThatDiffersFromTheRunningJobIsAFault) {
  servers_[0].status.set_state(v1::STATE_READY);
  servers_[0].status.mutable_job()->set_model_sha256("abc");
  EXPECT_THAT(Faults(), ElementsAre("model: differs from the model of the job that is running on ps/0"));
}

TEST_F(PreflightTest, APortInUseIsAFault) {
  const Port taken(/*listens=*/true);
  UseCluster({servers_[0].address(), taken.address()});
  servers_[0].status.set_cluster_hash(0);
  examination_.cluster.self = {"ps", 1};
  examination_.timeout = std::chrono::milliseconds(500);  // the process that uses the port does not answer
  const auto faults = Faults();
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_THAT(faults[0], StartsWith(absl::StrCat("ps/1: ", taken.address(), ": ")));
  EXPECT_THAT(faults[1],
              testing::MatchesRegex("port: [0-9]+, the port of ps/1, is taken here: Address already in use"));
}

TEST_F(PreflightTest, ClockSkewIsAFault) {
  servers_[0].status.set_unix_seconds(kNow + 90);
  servers_[1].status.set_unix_seconds(kNow - 300);
  EXPECT_THAT(Faults(), ElementsAre("ps/0: its clock is 1 min 30 s ahead of ours",
                                    "ps/1: its clock is 5 min 00 s behind ours"));
}

TEST_F(PreflightTest, AMissingGpuIsAFault) {
  examination_.options.devices.device = "/gpu:0";
  EXPECT_THAT(Faults(), ElementsAre(testing::AllOf(StartsWith("device: "), HasSubstr("/gpu:0"))));
}

TEST_F(PreflightTest, AFaultIsFollowedByItsRemedy) {
  const std::string text =
      AsText({{.subject = "ps/0", .what = "well"},
              {.subject = "data", .fault = true, .what = "gone", .remedy = "bring it back"}});
  EXPECT_EQ(text,
            "ps/0  ok     well\n"
            "data  FAULT  gone\n"
            "             -> bring it back\n"
            "2 checks, 1 fault\n");
  EXPECT_THAT(text, Not(HasSubstr("faults")));
}

}  // namespace
}  // namespace cairn::cli
