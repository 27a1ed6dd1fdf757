#include "ps/task/ps_task.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/flags/flags.h"
#include "common/flags/words.h"
#include "common/memory/memory_size.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/security/tls.h"
#include "common/net/server/health.h"
#include "common/net/server/listening.h"
#include "common/net/server/port_wait.h"
#include "common/system/cores.h"
#include "common/system/thread.h"
#include "grpcpp/server_builder.h"
#include "ps/rpc/backup_dialer.h"
#include "ps/rpc/follow.h"
#include "ps/rpc/service.h"
#include "ps/rpc/twin.h"

namespace cairn::ps {
namespace {

// How long streams and calls may take to end when the task stops.
constexpr auto kDrain = std::chrono::seconds(5);
// A longer pause between two ticks means that the process was paused or got no CPU time. Ticks normally come
// ten times a second.
constexpr auto kStoodStill = std::chrono::seconds(1);

// Memory of the process in addition to the job's: libraries, and gRPC's buffers for open streams. A process
// that needs far more is being flooded.
constexpr int64_t kMemoryBeside = int64_t{256} << 20;

// Default limit on the threads that share an update. More threads do not help, because the memory is
// saturated.
constexpr int kDefaultMaxThreads = 4;

}  // namespace

PsTask::PsTask(const PsOptions& options, const net::ResolvedCluster& cluster, SignalQueue& signals)
    : options_(options),
      cluster_(cluster),
      signals_(signals),
      self_(cluster.spec.tasks("ps").at(cluster.self.index)),
      address_(options.listen.empty() ? absl::StrCat("0.0.0.0:", self_.port) : options.listen),
      memory_limit_(options.memory_limit.empty() ? UsableMemory()
                                                 : ParseMemorySize(options.memory_limit).value()),
      transport_(net::ParseTransport(options.transport).value()),
      faults_(options.fault) {}

ExitCode PsTask::Run() {
  std::vector<net::TaskPort> ports = {{.address = address_, .reuse_port = options_.reuse_port}};
  if (const auto metrics = monitor::PortOf(options_.metrics)) ports.push_back(*metrics);
  if (const auto end = net::AwaitPorts(ports, signals_)) return *end;
  Prepare();
  if (const auto end = Listen()) return *end;
  LogStart();
  const Thread twin("twin", [this] { CheckTwin(); });
  const ExitCode end = Serve();
  Stop(end);
  return end;
}

void PsTask::Prepare() {
  trace_.emplace(options_.trace, cluster_.self.ToString());
  thread_pool_.emplace(options_.threads > 0 ? options_.threads : std::min(kDefaultMaxThreads, UsableCores()));
  tables_.emplace(&*thread_pool_);
  incarnation_ = net::DrawIncarnation();
  data_listeners_ =
      net::ListenForData(options_.access.tls, transport_, address_, options_.data_port, "clients");
  data_endpoint_ = data_listeners_.address();
  const int index = cluster_.self.index;
  shards_.emplace(MakeServer(index), index, [this](int shard) { return MakeServer(shard); });
  gate_.emplace(cluster_.self.ToString(), options_.access);
  service_ = MakeService(*shards_, {.gate = &*gate_, .chief = cluster_.spec.chief().ToString()});
  monitor_.emplace(shards_->own(), clock_, self_.ToString());
  inspector_ = monitor_->MakeService(&*gate_);
}

std::unique_ptr<Server> PsTask::MakeServer(int shard) {
  const net::Credentials credentials = net::CredentialsOf(options_.access);
  return std::make_unique<Server>(Server::Options{.index = shard,
                                                  .host_index = cluster_.self.index,
                                                  .cluster_hash = cluster_.spec.Hash(),
                                                  .incarnation = incarnation_,
                                                  .connect_to_leader = ConnectByGrpc(shard, credentials),
                                                  .connect_to_backup = DialBackup(credentials, transport_),
                                                  .memory_limit = memory_limit_,
                                                  .thread_pool = &*thread_pool_,
                                                  .faults = &faults_,
                                                  .trace = trace_->recorder(),
                                                  .tables = &*tables_,
                                                  .data_endpoint = data_endpoint_},
                                  clock_);
}

std::optional<ExitCode> PsTask::Listen() {
  net::OfferHealthAndReflection();
  grpc::ServerBuilder builder;
  net::ConfigureServer(builder, options_.reuse_port);
  grpc_port_.emplace(builder, address_, net::ServerCredentialsOf(options_.access.tls), options_.reuse_port,
                     &port_);
  builder.RegisterService(service_.get());
  builder.RegisterService(inspector_.get());
  if (options_.metrics.port.has_value()) {
    auto started =
        monitor::HttpServer::Start(options_.metrics.host, *options_.metrics.port,
                                   [this](const std::string& path) { return monitor_->Page(path); });
    if (!started.ok()) return UsageError(kProgram, started.status().message());
    http_ = *std::move(started);
  }
  grpc_server_ = builder.BuildAndStart();
  if (grpc_server_ == nullptr || port_ == 0) {
    LogError("cannot listen on ", address_, ": is another process using the port?");
    return ExitCode::kUsage;
  }
  grpc_port_->BoundMemory(memory_limit_ + kMemoryBeside);
  grpc_port_->Open();
  if (data_listeners_.any()) {
    data_channel_service_.emplace(
        *shards_, std::move(data_listeners_),
        DataChannelService::Options{.incarnation = incarnation_,
                                    .shared_memory = transport_ == net::Transport::kShm});
  }
  return std::nullopt;
}

void PsTask::LogStart() const {
  LogInfo("cluster from ", cluster_.source, ": ", cluster_.spec.ToJson());
  LogInfo("memory limit: ", InGiB(static_cast<double>(memory_limit_)),
          options_.memory_limit.empty() ? ", this machine's or its control group's" : "");
  LogInfo("Started server with target: grpc://", self_.host, ":", port_);
  if (http_ != nullptr) {
    LogInfo("status at http://", options_.metrics.host, ":", http_->port(), "/statusz");
  }
  net::WarnOfAccess(options_.access, address_, self_.host, "the variables", "clients");
}

void PsTask::CheckTwin() {
  const absl::Status alone = CheckNoTwin({.task = cluster_.self.ToString(),
                                          .address = self_.ToString(),
                                          .cluster_hash = cluster_.spec.Hash(),
                                          .incarnation = incarnation_},
                                         net::CredentialsOf(options_.access));
  if (alone.ok()) return;
  LogError(alone.message());
  has_twin_ = true;
}

ExitCode PsTask::Serve() {
  faults_.Pass("started");
  std::optional<ExitCode> end;
  TimePoint last_tick = clock_.Now();
  while (!end.has_value()) {
    const TimePoint now = clock_.Now();
    if (now - std::exchange(last_tick, now) > kStoodStill) shards_->WokeUp();
    shards_->Tick();
    monitor_->Sample();
    net::SetReady(*grpc_server_, shards_->own().ready());
    end = has_twin_ ? ExitCode::kIncompatible : shards_->ended();
    if (const auto signal = signals_.WaitFor(std::chrono::milliseconds(100))) {
      LogInfo("stopping on signal ", *signal);
      end = ExitCodeOfSignal(*signal);
    }
  }
  return *end;
}

void PsTask::Stop(ExitCode end) {
  grpc_port_->Close();
  net::StopServing(*grpc_server_);
  shards_->Shutdown();
  if (data_channel_service_.has_value()) data_channel_service_->Stop(kDrain);
  Drain(end);
  if (end == ExitCode::kDone) LogInfo("training is over");
}

void PsTask::Drain(ExitCode end) {
  const auto leave = std::chrono::steady_clock::now() + 2 * kDrain;
  std::atomic<bool> drained{false};
  const Thread shutdown("drain", [&] {
    grpc_server_->Shutdown(std::chrono::system_clock::now() + kDrain);
    drained = true;
  });
  while (!drained) {
    if (const auto signal = signals_.WaitFor(std::chrono::milliseconds(20))) _exit(128 + *signal);
    if (std::chrono::steady_clock::now() < leave) continue;
    LogWarning("some calls have not ended: exiting without them");
    _exit(static_cast<int>(end));
  }
}

}  // namespace cairn::ps
