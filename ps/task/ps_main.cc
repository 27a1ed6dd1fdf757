// cairn-ps: reads the flags of one parameter server task, and runs the task (ps_task.h).

#include <csignal>
#include <cstdlib>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/build_info/build_info.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/flags/words.h"
#include "common/memory/out_of_memory.h"
#include "common/net/cluster/cluster_flags.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/cluster/task_needs.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/security/access.h"
#include "common/net/server/listening.h"
#include "common/system/cores.h"
#include "common/system/process_start.h"
#include "common/system/signals.h"
#include "common/system/standard_streams.h"
#include "common/trace/trace_session.h"
#include "ps/task/ps_task.h"

namespace cairn::ps {
namespace {

int Fault(absl::string_view text) {
  return static_cast<int>(UsageError(kProgram, text));
}

struct Flags {
  net::ClusterFlags cluster{};
  PsOptions options{};
  std::string log_level = "info", log_format = "text";
};

void AddPsFlags(CLI::App& app, Flags& flags) {
  PsOptions& options = flags.options;
  net::AddClusterFlags(app, flags.cluster);
  net::AddAccessFlags(app, options.access);
  monitor::AddMetricsFlags(app, options.metrics);
  AddTraceFlags(app, options.trace);
  AddFlags(
      app, kNetworkGroup,
      {{"--listen HOST:PORT", &options.listen, "Address to listen on [0.0.0.0 and the port of this task]"}});
  AddFlags(app, "", {{"--reuse_port", &options.reuse_port}});
  AddFlags(app, "Resources",
           {{"--memory_limit SIZE", &options.memory_limit,
             "Memory that a job may use, for example 4GiB or 500MB [memory of the machine or of its control "
             "group]",
             ParsedBy(&ParseMemorySize)}});
  AddFlags(
      app, kNetworkGroup,
      {{"--transport", &options.transport,
        "Transports to clients and to a backup: auto, shm: all; unix: all except shared memory; tcp: TCP and "
        "gRPC; grpc: only gRPC [auto]",
        OneOf(net::kTransportWords), kDefaultInText}});
  net::AddDataPortFlag(app, options.data_port);
  AddFlags(app, "Resources",
           {{"--threads N", &options.threads,
             "Threads that apply a large update; 0: one per core, at most 4. Results do not depend on it",
             WholeNumberBetween(0, kMaxThreads), kDefaultInText}});
  AddLogFlags(app, flags.log_level, flags.log_format);
  AddFaultFlag(app, options.fault);
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
  AddPsFlags(app, flags);
  if (const auto exit = ParseCommandLine(app, argc, argv, BuildInfo())) return static_cast<int>(*exit);

  const auto cluster = net::ResolveCluster(flags.cluster, std::getenv("TF_CONFIG"));
  if (!cluster.ok()) return Fault(cluster.status().message());
  if (cluster->self.job != "ps") {
    return Fault(absl::StrCat("--job_name: this program is a ps, not ", WithArticle(cluster->self.job)));
  }
  if (const absl::Status status = net::CheckAccess(flags.options.access, std::getenv(net::kTokenVariable));
      !status.ok()) {
    return Fault(status.message());
  }
  if (const absl::Status status = CheckTraceFlags(flags.options.trace); !status.ok()) {
    return Fault(status.message());
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
  PsTask task(flags.options, *cluster, signals);
  return static_cast<int>(task.Run());
}

}  // namespace cairn::ps

int main(int argc, char** argv) {
  cairn::ReportOutOfMemory("cairn-ps");
  return cairn::ps::Main(argc, argv);
}
