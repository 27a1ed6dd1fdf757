// cairn-ps: one parameter server task.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/build_info/build_info.h"
#include "common/core/cores.h"
#include "common/core/flag_table.h"
#include "common/core/flags.h"
#include "common/core/log.h"
#include "common/core/memory_size.h"
#include "common/core/out_of_memory.h"
#include "common/core/process_start.h"
#include "common/core/signals.h"
#include "common/core/standard_streams.h"
#include "common/core/status.h"
#include "common/core/thread.h"
#include "common/core/thread_pool.h"
#include "common/core/trace_session.h"
#include "common/core/words.h"
#include "common/net/access.h"
#include "common/net/cluster_flags.h"
#include "common/net/cluster_spec.h"
#include "common/net/gate.h"
#include "common/net/grpc_port.h"
#include "common/net/grpc_util.h"
#include "common/net/health.h"
#include "common/net/http_server.h"
#include "common/net/listening.h"
#include "common/net/port_wait.h"
#include "common/net/task_needs.h"
#include "common/net/tls.h"
#include "grpcpp/server_builder.h"
#include "ps/data_channel_service.h"
#include "ps/follow.h"
#include "ps/hosted_shards.h"
#include "ps/monitor.h"
#include "ps/replicate.h"
#include "ps/server.h"
#include "ps/service.h"
#include "ps/twin.h"

namespace cairn::ps {
namespace {

constexpr char kProgram[] = "cairn-ps";
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

struct Flags {
  net::ClusterFlags cluster;
  net::Access access;
  net::MetricsFlags metrics;
  TraceFlags trace;
  std::string listen;
  bool reuse_port = false;
  std::string memory_limit;
  std::string transport = "auto";
  int data_port = 0;
  int threads = 0;
  std::string log_level = "info";
  std::string log_format = "text";
  FaultPoints::Fault fault;
};

// Lets calls and streams end, for at most kDrain. After that, gRPC still processes everything that it has
// received. After another kDrain, or at a second signal, the process exits at once.
void Drain(grpc::Server& server, SignalQueue& signals, ExitCode end) {
  const auto leave = std::chrono::steady_clock::now() + 2 * kDrain;
  std::atomic<bool> drained{false};
  const Thread shutdown("drain", [&] {
    server.Shutdown(std::chrono::system_clock::now() + kDrain);
    drained = true;
  });
  while (!drained) {
    if (const auto signal = signals.WaitFor(std::chrono::milliseconds(20))) _exit(128 + *signal);
    if (std::chrono::steady_clock::now() < leave) continue;
    LogWarning("some calls have not ended: exiting without them");
    _exit(static_cast<int>(end));
  }
}

ExitCode Run(const Flags& flags, const net::ResolvedCluster& cluster, SignalQueue& signals) {
  const int index = cluster.self.index;
  const net::HostPort self = cluster.spec.tasks("ps").at(index);
  const std::string address = flags.listen.empty() ? absl::StrCat("0.0.0.0:", self.port) : flags.listen;

  std::vector<net::TaskPort> ports = {{.address = address, .reuse_port = flags.reuse_port}};
  if (const auto metrics = net::PortOf(flags.metrics)) ports.push_back(*metrics);
  if (const auto end = net::AwaitPorts(ports, signals)) return *end;

  const int64_t memory_limit =
      flags.memory_limit.empty() ? UsableMemory() : ParseMemorySize(flags.memory_limit).value();

  TraceSession trace(flags.trace, cluster.self.ToString());
  SteadyClock clock;
  FaultPoints faults(flags.fault);
  ThreadPool thread_pool(flags.threads > 0 ? flags.threads : std::min(kDefaultMaxThreads, UsableCores()));
  const uint64_t incarnation = net::DrawIncarnation();
  const net::Transport transport = net::ParseTransport(flags.transport).value();
  net::DataListeners data_listeners =
      net::ListenForData(flags.access.tls, transport, address, flags.data_port, "clients");
  const auto make_server = [&, credentials = net::CredentialsOf(flags.access)](int shard) {
    return std::make_unique<Server>(
        Server::Options{
            .index = shard,
            .host_index = index,
            .cluster_hash = cluster.spec.Hash(),
            .incarnation = incarnation,
            .connect_to_leader = ConnectByGrpc(shard, credentials),
            .connect_to_backup = DialBackupByGrpc(credentials),
            .memory_limit = memory_limit,
            .thread_pool = &thread_pool,
            .faults = &faults,
            .trace = trace.recorder(),
            .data_endpoint = data_listeners.address(),
        },
        clock);
  };
  HostedShards shards(make_server(index), index, make_server);
  const net::Gate gate(cluster.self.ToString(), flags.access);
  const auto service = MakeService(shards, {.gate = &gate, .chief = cluster.spec.chief().ToString()});
  net::OfferHealthAndReflection();
  grpc::ServerBuilder builder;
  net::ConfigureServer(builder, flags.reuse_port);
  int port = 0;
  net::GrpcPort grpc_port(builder, address, net::ServerCredentialsOf(flags.access.tls), flags.reuse_port,
                          &port);
  builder.RegisterService(service.get());
  Monitor monitor(shards.own(), clock, self.ToString());
  const auto inspector = monitor.MakeService(&gate);
  builder.RegisterService(inspector.get());
  std::unique_ptr<net::HttpServer> http;
  if (flags.metrics.port.has_value()) {
    auto started = net::HttpServer::Start(flags.metrics.host, *flags.metrics.port,
                                          [&monitor](const std::string& path) { return monitor.Page(path); });
    if (!started.ok()) return UsageError(kProgram, started.status().message());
    http = *std::move(started);
  }
  const std::unique_ptr<grpc::Server> grpc_server = builder.BuildAndStart();
  if (grpc_server == nullptr || port == 0) {
    LogError("cannot listen on ", address, ": is another process using the port?");
    return ExitCode::kUsage;
  }
  grpc_port.BoundMemory(memory_limit + kMemoryBeside);
  grpc_port.Open();
  std::optional<DataChannelService> data_channel_service;
  if (data_listeners.any()) {
    data_channel_service.emplace(
        shards, std::move(data_listeners),
        DataChannelService::Options{.incarnation = incarnation,
                                    .shared_memory = transport == net::Transport::kShm});
  }
  LogInfo("cluster from ", cluster.source, ": ", cluster.spec.ToJson());
  LogInfo("memory limit: ", InGiB(static_cast<double>(memory_limit)),
          flags.memory_limit.empty() ? ", this machine's or its control group's" : "");
  LogInfo("Started server with target: grpc://", self.host, ":", port);
  if (http != nullptr) LogInfo("status at http://", flags.metrics.host, ":", http->port(), "/statusz");
  net::WarnOfAccess(flags.access, address, self.host, "the variables", "clients");

  std::atomic<bool> has_twin{false};
  const Thread asks("twin", [&] {
    const absl::Status alone = CheckNoTwin({.task = cluster.self.ToString(),
                                            .address = self.ToString(),
                                            .cluster_hash = cluster.spec.Hash(),
                                            .incarnation = incarnation},
                                           net::CredentialsOf(flags.access));
    if (alone.ok()) return;
    LogError(alone.message());
    has_twin = true;
  });

  faults.Pass("started");
  std::optional<ExitCode> end;
  TimePoint last_tick = clock.Now();
  while (!end.has_value()) {
    const TimePoint now = clock.Now();
    if (now - std::exchange(last_tick, now) > kStoodStill) shards.WokeUp();
    shards.Tick();
    monitor.Sample();
    net::SetReady(*grpc_server, shards.own().ready());
    end = has_twin ? ExitCode::kIncompatible : shards.ended();
    if (const auto signal = signals.WaitFor(std::chrono::milliseconds(100))) {
      LogInfo("stopping on signal ", *signal);
      end = ExitCodeOfSignal(*signal);
    }
  }
  grpc_port.Close();
  net::StopServing(*grpc_server);
  shards.Shutdown();
  if (data_channel_service.has_value()) data_channel_service->Stop(kDrain);
  Drain(*grpc_server, signals, *end);
  if (end == ExitCode::kDone) LogInfo("training is over");
  return *end;
}

}  // namespace

int Main(int argc, char** argv) {
  OccupyStandardStreams();
  PrepareProcess(argv);
  IgnoreBrokenPipes();
  SignalQueue signals({SIGINT, SIGTERM, SIGHUP});
  net::TuneMalloc();
  net::LogRefusedPeers();
  Flags flags;
  CLI::App app("Runs one parameter server of a Cairn cluster", kProgram);
  net::AddClusterFlags(app, flags.cluster);
  net::AddAccessFlags(app, flags.access);
  net::AddMetricsFlags(app, flags.metrics);
  AddTraceFlags(app, flags.trace);
  AddFlags(
      app, kNetworkGroup,
      {{"--listen HOST:PORT", &flags.listen, "Address to listen on [0.0.0.0 and the port of this task]"}});
  AddFlags(app, "", {{"--reuse_port", &flags.reuse_port}});
  AddFlags(app, "Resources",
           {{"--memory_limit SIZE", &flags.memory_limit,
             "Memory that a job may use, for example 4GiB or 500MB [memory of the machine or of its control "
             "group]",
             ParsedBy(&ParseMemorySize)}});
  AddFlags(app, kNetworkGroup,
           {{"--transport", &flags.transport,
             "Transports that clients may use: auto, shm: all; unix: all except shared memory; tcp: TCP and "
             "gRPC; grpc: only gRPC [auto]",
             OneOf(net::kTransportWords), kDefaultInText}});
  net::AddDataPortFlag(app, flags.data_port);
  AddFlags(app, "Resources",
           {{"--threads N", &flags.threads,
             "Threads that apply a large update; 0: one per core, at most 4. Results do not depend on it",
             WholeNumberBetween(0, kMaxThreads), kDefaultInText}});
  AddLogFlags(app, flags.log_level, flags.log_format);
  AddFaultFlag(app, flags.fault);
  if (const auto exit = ParseCommandLine(app, argc, argv, BuildInfo())) return static_cast<int>(*exit);

  const auto cluster = net::ResolveCluster(flags.cluster, std::getenv("TF_CONFIG"));
  if (!cluster.ok()) return static_cast<int>(UsageError(kProgram, cluster.status().message()));
  if (cluster->self.job != "ps") {
    return static_cast<int>(UsageError(
        kProgram, absl::StrCat("--job_name: this program is a ps, not ", WithArticle(cluster->self.job))));
  }
  if (const absl::Status status = net::CheckAccess(flags.access, std::getenv(net::kTokenVariable));
      !status.ok()) {
    return static_cast<int>(UsageError(kProgram, status.message()));
  }
  if (const absl::Status status = CheckTraceFlags(flags.trace); !status.ok()) {
    return static_cast<int>(UsageError(kProgram, status.message()));
  }
  StartLogging(cluster->self.ToString(), LogLevelOf(flags.log_level), LogFormatOf(flags.log_format));
  const int workers = static_cast<int>(cluster->spec.trainers().size());
  const absl::Status limits = EnterLimits({.files = net::kTaskDescriptors,
                                           .threads = net::kTaskThreads,
                                           .peer_threads = net::kConnectionThreads * workers},
                                          net::ServerDescriptors(workers));
  if (!limits.ok()) {
    LogError(limits.message());
    return static_cast<int>(ExitCodeOf(limits));
  }
  return static_cast<int>(Run(flags, *cluster, signals));
}

}  // namespace cairn::ps

int main(int argc, char** argv) {
  cairn::ReportOutOfMemory("cairn-ps");
  return cairn::ps::Main(argc, argv);
}
