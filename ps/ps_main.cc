// cairn-ps: one parameter server task.

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/core/flags.h"
#include "common/core/log.h"
#include "common/core/memory_size.h"
#include "common/core/signals.h"
#include "common/core/status.h"
#include "common/net/cluster_flags.h"
#include "common/net/cluster_spec.h"
#include "common/net/grpc_util.h"
#include "common/net/tls.h"
#include "grpcpp/server_builder.h"
#include "ps/follow.h"
#include "ps/parts.h"
#include "ps/replicate.h"
#include "ps/server.h"
#include "ps/service.h"

namespace cairn::ps {
namespace {

constexpr char kProgram[] = "cairn-ps";
// How long streams and calls may take to end when the task stops.
constexpr auto kDrain = std::chrono::seconds(5);
// A tick comes ten times a second, unless the process is stopped or has no processor.
constexpr auto kStoodStill = std::chrono::seconds(1);

struct Flags {
  net::ClusterFlags cluster;
  net::TlsFiles tls;
  std::string listen;
  bool reuse_port = false;
  std::string memory_limit;
  std::string log_level = "info";
  FaultPoints::Fault fault;
};

// Differs between processes: the time of the start, in microseconds, above the process id.
uint64_t DrawIncarnation() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  return (micros << 12) | (static_cast<uint64_t>(getpid()) & 0xFFF);
}

// What makes the traffic readable to others, or the server unreachable to its own.
void WarnOfTls(const net::TlsFiles& tls, const std::string& listens_at, const std::string& host) {
  if (!tls.any() && net::ReachableFromOutside(listens_at)) {
    LogWarning("NOT ENCRYPTED: whoever reaches ", listens_at,
               " can read and change the variables; --tls_cert, --tls_key and --tls_ca prevent it");
  }
  if (const absl::Status status = net::CheckTlsNames(tls, host); !status.ok()) {
    LogWarning(status.message(), ": clients will refuse this server");
  }
}

ExitCode Run(const Flags& flags, const net::ResolvedCluster& cluster, SignalQueue& signals) {
  const int index = cluster.self.index;
  const net::HostPort self = cluster.spec.tasks("ps").at(index);
  const std::string address = flags.listen.empty() ? absl::StrCat("0.0.0.0:", self.port) : flags.listen;

  const int64_t memory_limit =
      flags.memory_limit.empty() ? UsableMemory() : ParseMemorySize(flags.memory_limit).value();

  SteadyClock clock;
  FaultPoints faults(flags.fault);
  const auto make_server = [&, incarnation = DrawIncarnation(),
                            credentials = net::ChannelCredentialsOf(flags.tls)](int part) {
    return std::make_unique<Server>(
        Server::Options{
            .index = part,
            .place = index,
            .cluster_hash = cluster.spec.Hash(),
            .incarnation = incarnation,
            .connect_to_leader = ConnectByGrpc(part, credentials),
            .connect_to_copy = DialCopyByGrpc(credentials),
            .memory_limit = memory_limit,
            .faults = &faults,
        },
        clock);
  };
  Parts parts(make_server(index), index, make_server);
  const auto service = MakeService(parts);
  grpc::ServerBuilder builder;
  net::ConfigureServer(builder, flags.reuse_port);
  int port = 0;
  builder.AddListeningPort(address, net::ServerCredentialsOf(flags.tls), &port);
  builder.RegisterService(service.get());
  const std::unique_ptr<grpc::Server> grpc_server = builder.BuildAndStart();
  if (grpc_server == nullptr || port == 0) {
    LogError("cannot listen on ", address, ": is another process using the port?");
    return ExitCode::kUsage;
  }
  LogInfo("cluster from ", cluster.source, ": ", cluster.spec.ToJson());
  LogInfo("memory limit: ", InGiB(static_cast<double>(memory_limit)),
          flags.memory_limit.empty() ? ", this machine's or its control group's" : "");
  LogInfo("Started server with target: grpc://", self.host, ":", port);
  WarnOfTls(flags.tls, address, self.host);

  faults.Pass("started");
  std::optional<ExitCode> end;
  TimePoint last_tick = clock.Now();
  while (!end.has_value()) {
    const TimePoint now = clock.Now();
    if (now - std::exchange(last_tick, now) > kStoodStill) parts.WokeUp();
    parts.Tick();
    end = parts.ended();
    if (const auto signal = signals.WaitFor(std::chrono::milliseconds(100))) {
      LogInfo("stopping on signal ", *signal);
      end = signal == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated;
    }
  }
  parts.Shutdown();
  grpc_server->Shutdown(std::chrono::system_clock::now() + kDrain);
  if (end == ExitCode::kDone) LogInfo("training is over");
  return *end;
}

}  // namespace

int Main(int argc, char** argv) {
  SignalQueue signals({SIGINT, SIGTERM});
  net::TuneMalloc();
  net::LogRefusedPeers();
  Flags flags;
  CLI::App app("One parameter server task of a Cairn cluster.", kProgram);
  net::AddClusterFlags(app, flags.cluster);
  net::AddTlsFlags(app, flags.tls);
  app.add_option("--listen", flags.listen, "HOST:PORT to listen on; default: 0.0.0.0 and the task's port");
  app.add_flag("--reuse_port,--reuse-port", flags.reuse_port)->group("");
  app.add_option(
         FlagNames("memory_limit"), flags.memory_limit,
         "What a job may take, like 4GiB or 500MB; default: the machine's memory, or its control group's")
      ->check(MemorySize())
      ->type_name("SIZE");
  AddLogLevelFlag(app, flags.log_level);
  AddFaultFlag(app, flags.fault);
  if (const auto exit = ParseCommandLine(app, argc, argv)) return static_cast<int>(*exit);

  const auto cluster = net::ResolveCluster(flags.cluster, std::getenv("TF_CONFIG"));
  if (!cluster.ok()) return static_cast<int>(UsageError(kProgram, cluster.status().message()));
  if (cluster->self.job != "ps") {
    return static_cast<int>(
        UsageError(kProgram, absl::StrCat("--job_name: this program is a ps, not a ", cluster->self.job)));
  }
  if (const absl::Status status = net::CheckTlsFiles(flags.tls); !status.ok()) {
    return static_cast<int>(UsageError(kProgram, status.message()));
  }
  StartLogging(cluster->self.ToString(), LogLevelOf(flags.log_level));
  return static_cast<int>(Run(flags, *cluster, signals));
}

}  // namespace cairn::ps

int main(int argc, char** argv) {
  return cairn::ps::Main(argc, argv);
}
