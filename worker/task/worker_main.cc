// cairn-worker: reads the flags of one worker task, and runs the task (worker_task.h).

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/build_info/build_info.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/memory/out_of_memory.h"
#include "common/net/cluster/cluster_flags.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/cluster/task_needs.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/security/access.h"
#include "common/net/security/local_token.h"
#include "common/net/server/listening.h"
#include "common/system/process_start.h"
#include "common/system/signals.h"
#include "common/system/standard_streams.h"
#include "common/trace/trace_session.h"
#include "data/file/mapped_file.h"
#include "worker/options/device_flags.h"
#include "worker/options/options.h"
#include "worker/options/output_paths.h"
#include "worker/peer/peer_listener.h"
#include "worker/task/worker_task.h"

namespace cairn::worker {
namespace {

int Fault(absl::string_view text) {
  return static_cast<int>(UsageError(kProgram, text));
}

struct Flags {
  TrainOptions options;
  net::ClusterFlags cluster;
  net::Access access;
  monitor::MetricsFlags pages;
  TraceFlags trace;
  ListenFlags listen;
  FaultPoints::Fault fault;
};

void AddWorkerFlags(CLI::App& app, Flags& flags) {
  net::AddClusterFlags(app, flags.cluster);
  net::AddAccessFlags(app, flags.access);
  monitor::AddMetricsFlags(app, flags.pages);
  AddTraceFlags(app, flags.trace);
  AddTrainOptions(app, flags.options);
  AddFlags(app, kNetworkGroup,
           {{"--listen HOST:PORT", &flags.listen.address,
             "Address to listen on, if other workers connect to this one (--mode allreduce, --place across "
             "workers) [0.0.0.0 and the port of this task]"}});
  net::AddDataPortFlag(app, flags.listen.data_port);
  AddFlags(app, "", {{"--reuse_port", &flags.listen.reuse_port}});
  AddFaultFlag(app, flags.fault);
}

// Checks the flags that do not depend on the cluster.
absl::Status CheckFlags(Flags& flags) {
  CAIRN_RETURN_IF_ERROR(Validate(flags.options));
  if (flags.options.model.empty()) return absl::InvalidArgumentError("--model is missing");
  CAIRN_RETURN_IF_ERROR(net::CheckAccess(flags.access, std::getenv(net::kTokenVariable)));
  return CheckTraceFlags(flags.trace);
}

// OpenMP's threads spin while they wait, and take cores from other processes. Only an environment variable
// that is read before main() prevents it, so a worker that shares its host or may have more threads than
// cores sets the variable and restarts itself.
void WaitPassively(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "passive", 0);
  execv("/proc/self/exe", argv);  // if this fails, the worker continues unchanged
}

// INVALID_ARGUMENT, or the error of CheckOutputPaths(), if the flags do not suit this task of the cluster.
absl::Status CheckTask(const TrainOptions& options, const net::ResolvedCluster& cluster) {
  if (cluster.self.job == "ps") {
    return absl::InvalidArgumentError(
        "--job_name: this program is a worker, a chief or an evaluator, not a ps");
  }
  if (cluster.self.job == "evaluator" && options.train_dir.empty()) {
    return absl::InvalidArgumentError("--train_dir is missing: an evaluator evaluates the checkpoints in it");
  }
  if (cluster.self == cluster.spec.chief()) CAIRN_RETURN_IF_ERROR(CheckOutputPaths(options));
  const int servers = cluster.spec.num_tasks("ps");
  if (options.all_reduce() && servers > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(cluster.source, ": --mode allreduce does not use the cluster's ", servers, " ps"));
  }
  return absl::OkStatus();
}

}  // namespace

int Main(int argc, char** argv) {
  OccupyStandardStreams();
  PrepareProcess(argv);
  IgnoreBrokenPipes();
  SignalQueue signals({SIGINT, SIGTERM, SIGHUP});
  net::TuneMalloc();
  net::QuietGrpc();
  Flags flags;
  const TrainOptions& options = flags.options;
  CLI::App app("Runs one worker of a Cairn cluster", kProgram);
  AddWorkerFlags(app, flags);
  if (const auto exit = ParseCommandLine(app, argc, argv, BuildInfo())) return static_cast<int>(*exit);
  if (const absl::Status status = CheckFlags(flags); !status.ok()) return Fault(status.message());

  flags.cluster.unlisted_workers = options.elastic;
  flags.cluster.needs_servers = !options.all_reduce();
  const auto cluster = net::ResolveCluster(flags.cluster, std::getenv("TF_CONFIG"));
  if (!cluster.ok()) return Fault(cluster.status().message());
  if (const absl::Status status = CheckTask(options, *cluster); !status.ok()) return Fault(status.message());
  if (cluster->spec.num_tasks("ps") > 0) net::TakeLocalToken(cluster->spec.servers().front(), flags.access);
  if (cluster->spec.tasks_on_host_of(cluster->self) > 1 || options.deterministic ||
      options.devices.cpu_devices > 1) {
    WaitPassively(argv);
  }
  UseVisibleDevices(options.devices.visible_devices);
  StartLogging(cluster->self.ToString(), LogLevelOf(options.log_level), LogFormatOf(options.log_format));
  const int servers = cluster->spec.num_tasks("ps");
  const absl::Status limits = EnterLimits({.files = net::kTaskDescriptors,
                                           .threads = net::kTaskThreads + CoresOf(options, *cluster),
                                           .peer_threads = net::kConnectionThreads * servers},
                                          net::WorkerDescriptors(servers));
  if (!limits.ok()) {
    LogError(limits.message());
    return static_cast<int>(ExitCodeOf(limits));
  }
  data::ExplainTruncatedFiles();
  FaultPoints faults(flags.fault);
  WorkerTask task({.options = options,
                   .cluster = *cluster,
                   .access = flags.access,
                   .listen = flags.listen,
                   .pages = flags.pages,
                   .traced = flags.trace,
                   .signals = signals,
                   .faults = faults});
  return static_cast<int>(task.Run());
}

}  // namespace cairn::worker

int main(int argc, char** argv) {
  cairn::ReportOutOfMemory("cairn-worker");
  return cairn::worker::Main(argc, argv);
}
