#include "tests/bench/wire/cairn_ends.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/transport/data_channel_transport.h"
#include "client/transport/grpc_transport.h"
#include "common/core/status.h"
#include "common/net/gradient/codec.h"
#include "common/net/security/tls.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/wire_choice.h"

namespace cairn::bench {
namespace {

constexpr auto kTimeout = std::chrono::seconds(60);

// A port that no process uses at this moment.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  int port = 0;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
    port = ntohs(address.sin_port);
  }
  close(fd);
  return port;
}

std::string TaskOf(int worker) {
  return absl::StrCat("worker/", worker);
}

}  // namespace

std::string PsProgramBeside(const std::string& program) {
  return program.substr(0, program.rfind('/') + 1) + "cairn-ps";
}

absl::StatusOr<std::unique_ptr<PsProcesses>> PsProcesses::Start(const std::string& program, int count) {
  auto servers = std::make_unique<PsProcesses>();
  for (int i = 0; i < count; ++i) servers->addresses_.push_back(absl::StrCat("127.0.0.1:", FreePort()));
  const std::string hosts = absl::StrJoin(servers->addresses_, ",");
  for (int i = 0; i < count; ++i) {
    const pid_t pid = fork();
    if (pid < 0) return absl::InternalError("fork");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execl(program.c_str(), program.c_str(), "--ps_hosts", hosts.c_str(), "--worker_hosts", "127.0.0.1:1",
            "--job_name", "ps", "--task_index", absl::StrCat(i).c_str(), "--listen",
            servers->addresses_[static_cast<size_t>(i)].c_str(), "--log_level", "warning", nullptr);
      _exit(127);
    }
    servers->pids_.push_back(pid);
  }
  return servers;
}

PsProcesses::~PsProcesses() {
  for (pid_t pid : pids_) kill(pid, SIGKILL);
  for (pid_t pid : pids_) waitpid(pid, nullptr, 0);
}

BenchJob EqualVariables(const PsProcesses& servers, int workers, int count, int64_t elements) {
  BenchJob bench;
  v1::Job& job = bench.job;
  job.set_run_id("bench");
  job.set_mode(v1::MODE_SYNC);
  job.set_model_sha256("0123456789abcdef");
  for (int worker = 0; worker < workers; ++worker) job.add_workers(TaskOf(worker));
  job.set_replicas_to_aggregate(workers);
  job.mutable_optimizer()->set_name("SGD");
  (*job.mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = 0.01;
  job.set_batch_size(1);
  job.set_epochs(1);
  job.set_lease_seconds(600);
  for (const std::string& address : servers.addresses()) job.add_servers(address);
  for (int i = 0; i < count; ++i) {
    bench.variables.push_back({absl::StrCat("w", i), Shape({elements / 256, 256}), bench.elements});
    bench.elements += elements;
  }
  return bench;
}

absl::StatusOr<std::vector<std::unique_ptr<client::ServerStub>>> StubsTo(const PsProcesses& servers,
                                                                         const std::string& transport) {
  std::vector<std::unique_ptr<client::ServerStub>> stubs;
  CAIRN_ASSIGN_OR_RETURN(const net::Transport how, net::ParseTransport(transport));
  const auto credentials = net::ChannelCredentialsOf({});
  for (const std::string& address : servers.addresses()) {
    stubs.push_back(
        client::MakeDataChannelStub(client::MakeGrpcStub(address, credentials), {.transport = how}));
  }
  return stubs;
}

absl::StatusOr<std::unique_ptr<client::Connection>> Connect(const PsProcesses& servers,
                                                            const std::string& task,
                                                            const std::string& transport) {
  CAIRN_ASSIGN_OR_RETURN(auto stubs, StubsTo(servers, transport));
  return client::Connection::Open(std::move(stubs), {.task = task, .connect_timeout = kTimeout});
}

absl::Status Initialise(client::Connection& connection, const BenchJob& job) {
  client::FirstValues zeros(std::vector<float>(static_cast<size_t>(job.elements)));
  int64_t begun = -1;
  return client::InitialiseServers(
      connection, {.task = job.job.workers(0), .job = job.job, .variables = job.variables}, 0, zeros, &begun);
}

WireWorker::WireWorker(std::unique_ptr<client::Connection> connection, client::LearntJob job, int worker,
                       const BenchJob& bench)
    : connection_(std::move(connection)),
      job_(std::move(job)),
      worker_(worker),
      num_variables_(static_cast<int>(bench.variables.size())),
      encoding_(net::GradientEncodings(job_.job, bench.variables).front()),
      gradient_(bench.elements),
      values_(bench.elements) {
  // From -0.5 to 0.5, with no pattern that an encoding could profit from.
  uint32_t random = 1;
  for (float& value : gradient_.span()) {
    random = random * 1664525 + 1013904223;
    value = static_cast<float>(random >> 8) * 0x1p-24f - 0.5f;
  }
  if (net::GradientCodecOf(encoding_) != nullptr) {
    const std::vector<v1::Encoding> encodings(bench.variables.size(), encoding_);
    compressed_ = std::make_unique<client::CompressedGradients>(job_.layout, bench.variables, encodings,
                                                                job_.job.topk_fraction(), nullptr);
  }
  for (int server = 0; server < connection_->num_servers(); ++server) {
    sessions_.push_back(std::make_unique<client::ServerSession>(connection_->stub(server).streams()));
    const bool short_numbers = net::CodecOf(encoding_) != nullptr;
    rooms_.emplace_back(short_numbers ? job_.layout.arena_size(server) : 0);
  }
}

absl::StatusOr<std::unique_ptr<WireWorker>> WireWorker::Join(std::unique_ptr<client::Connection> connection,
                                                             const BenchJob& job, int worker) {
  const std::string task = TaskOf(worker);
  CAIRN_ASSIGN_OR_RETURN(
      client::LearntJob learnt,
      client::AwaitJob(*connection, {.task = task, .job = job.job, .variables = job.variables}));
  v1::JoinRequest request;
  request.set_worker(worker);
  request.set_task(task);
  for (int server = 0; server < connection->num_servers(); ++server) {
    v1::JoinResponse response;
    CAIRN_RETURN_IF_ERROR(connection->stub(server).Call(request, &response, kTimeout));
    request.set_incarnation(response.incarnation());
    request.set_incarnation_seal(response.incarnation_seal());
  }
  std::unique_ptr<WireWorker> joined(new WireWorker(std::move(connection), std::move(learnt), worker, job));
  joined->incarnation_ = request.incarnation();
  CAIRN_RETURN_IF_ERROR(joined->Pull());
  return joined;
}

absl::Status WireWorker::Exchange(bool read_values) {
  ++step_;
  if (compressed_ != nullptr) {
    compressed_->BeginStep();
    for (int variable = 0; variable < num_variables_; ++variable) {
      if (!compressed_->Compress(variable, gradient_.span())) {
        return absl::InternalError("a gradient that is not finite");
      }
    }
  }
  std::vector<client::PendingDone> done(sessions_.size());
  std::vector<uint64_t> ids;
  for (size_t server = 0; server < sessions_.size(); ++server) {
    v1::ClientHeader header;
    v1::PushBegin& begin = *header.mutable_push();
    begin.set_layout(job_.layout_ids[server]);
    begin.set_worker(worker_);
    begin.set_incarnation(incarnation_);
    begin.set_step(step_);
    begin.set_base_version(version_);
    begin.set_examples(1);
    begin.set_read_values(read_values);
    begin.set_values_encoding(job_.job.wire());
    CAIRN_ASSIGN_OR_RETURN(
        const uint64_t id,
        sessions_[server]->Begin(
            std::move(header),
            client::ReceiveInto(job_.layout.extents_on(static_cast<int>(server)), values_.span()),
            done[server].Callback()));
    SendGradient(static_cast<int>(server), id);
    sessions_[server]->SendEnd(id);
  }
  for (size_t server = 0; server < sessions_.size(); ++server) {
    CAIRN_ASSIGN_OR_RETURN(const v1::Done answer, done[server].Wait(*sessions_[server], kTimeout));
    if (answer.outcome() != v1::OUTCOME_ACCEPTED) {
      return absl::InternalError(absl::StrCat("the push was not accepted: ", answer.ShortDebugString()));
    }
    version_ = answer.version();
  }
  if (compressed_ != nullptr) compressed_->EndStep(std::vector<bool>(sessions_.size(), true));
  return absl::OkStatus();
}

void WireWorker::SendGradient(int server, uint64_t request) {
  const auto at = static_cast<size_t>(server);
  if (compressed_ == nullptr) {
    client::SendExtents(*sessions_[at], request, job_.layout.extents_on(server), gradient_.span(),
                        {.encoding = encoding_, .room = rooms_[at].span()});
    return;
  }
  for (const client::CompressedGradients::Ready& ready : compressed_->ready(server)) {
    sessions_[at]->SendChunk(request, ready.chunk, {&ready.payload, 1});
  }
}

absl::Status WireWorker::Pull() {
  std::vector<client::PendingDone> done(sessions_.size());
  for (size_t server = 0; server < sessions_.size(); ++server) {
    v1::ClientHeader header;
    header.mutable_read()->set_layout(job_.layout_ids[server]);
    header.mutable_read()->set_encoding(job_.job.wire());
    CAIRN_RETURN_IF_ERROR(
        sessions_[server]
            ->Begin(std::move(header),
                    client::ReceiveInto(job_.layout.extents_on(static_cast<int>(server)), values_.span()),
                    done[server].Callback())
            .status());
  }
  for (size_t server = 0; server < sessions_.size(); ++server) {
    CAIRN_ASSIGN_OR_RETURN(const v1::Done answer, done[server].Wait(*sessions_[server], kTimeout));
    version_ = answer.version();
  }
  return absl::OkStatus();
}

}  // namespace cairn::bench
