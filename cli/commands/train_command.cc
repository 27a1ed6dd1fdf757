#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/commands/command.h"
#include "cli/launcher/local_cluster.h"
#include "cli/launcher/local_job.h"
#include "cli/launcher/local_traces.h"
#include "cli/launcher/supervisor.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/flags/words.h"
#include "common/memory/memory_size.h"
#include "common/memory/out_of_memory.h"
#include "common/monitor/http_server.h"
#include "common/net/security/access.h"
#include "common/system/cores.h"
#include "common/system/standard_streams.h"
#include "worker/embedding/table_plan.h"
#include "worker/inputs/initial_values.h"
#include "worker/inputs/inputs.h"
#include "worker/options/options.h"
#include "worker/options/output_paths.h"
#include "worker/placement/model_partition.h"
#include "worker/training/callbacks.h"

namespace cairn::cli {
namespace {

constexpr char kTrainProgram[] = "cairn train";
constexpr absl::string_view kServersFlag = "--ps";
// Flags that the launcher sets for the workers itself.
constexpr const char* kOwnFlags[] = {"--model=", "--threads=", "--summary=", "--log_level=", "--log_format="};

int TrainFault(absl::string_view text) {
  return static_cast<int>(UsageError(kTrainProgram, text));
}

int Failure(const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", kTrainProgram, std::string(status.message()).c_str());
  return static_cast<int>(ExitCode::kFailure);
}

class TrainCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    AddFlags(app, {{"MODEL FILE", &model_, "Same as --model"}});
    AddFlags(app, "Local cluster",
             {{"--ps N", &num_servers_, "Number of parameter servers; 0 with --mode allreduce",
               WholeNumberFrom(0)},
              {"--workers N", &num_workers_, "Number of workers; they share the cores", WholeNumberFrom(1)},
              {"--ps_memory_limit SIZE", &ps_memory_limit_,
               "Memory that the job may use on each server, for example 4GiB or 500MB; sets cairn-ps "
               "--memory_limit",
               ParsedBy(&ParseMemorySize)}});
    // Applies to the first start of one task; see common/system/fault_points.h.
    app.add_option("--fault", faults_)->group("");
    AddTrainOptions(app, options_);
    AddFlags(app, kLoggingGroup,
             {{"--verbose", &verbose_, "Show all log messages of the tasks, not only warnings"}});
    AddFlags(app, "Fault tolerance",
             {{"--max_restarts N", &max_restarts_,
               "Number of times that each failed task is restarted; servers are restarted only with "
               "--train_dir or --ps_replication",
               WholeNumberFrom(0)}});
    net::AddAccessFlags(app, access_);
    monitor::AddMetricsFlags(app, metrics_);
    AddTraceFlags(app, trace_);
    AddRules(app, {{"MODEL", kExcludes, "--model"}});
  }

  int Run(const CLI::App& app) override {
    if (!model_.empty()) options_.model = model_;
    if (options_.all_reduce()) {
      for (const absl::string_view flag : {kServersFlag, absl::string_view("--ps_memory_limit")}) {
        if (app.get_option(std::string(flag))->empty() || (flag == kServersFlag && num_servers_ == 0))
          continue;  // --ps=0 agrees with the mode
        return TrainFault(absl::StrCat(flag, " does not go with --mode allreduce, which has no servers"));
      }
      num_servers_ = 0;
    } else if (num_servers_ == 0) {
      return TrainFault("--ps: 0 servers: only --mode allreduce trains without servers");
    }
    if (options_.model.empty()) return TrainFault("which model? `cairn train MODEL.json --data_dir DIR`");
    if (const absl::Status status = Validate(options_); !status.ok()) return TrainFault(status.message());
    if (options_.replicas_to_aggregate > num_workers_) {
      return TrainFault(absl::StrCat("--replicas_to_aggregate: ", options_.replicas_to_aggregate,
                                     " is more than ", Counted(num_workers_, "worker")));
    }
    if (options_.ps_replication > 0 && num_servers_ < 2) {
      return TrainFault(absl::StrCat("--ps_replication=", options_.ps_replication,
                                     ": a backup needs another server: --ps 2"));
    }
    const absl::Status access = net::CheckAccess(access_, std::getenv(net::kTokenVariable));
    if (!access.ok()) return TrainFault(access.message());
    if (const absl::Status status = CheckTraceFlags(trace_); !status.ok())
      return TrainFault(status.message());
    if (metrics_.port.value_or(0) + num_servers_ + num_workers_ > 65536) {
      return TrainFault(absl::StrCat("--metrics_port: each task needs a port, but the ",
                                     num_servers_ + num_workers_, " ports from ", *metrics_.port,
                                     " on exceed port 65535"));
    }
    if (const absl::Status status = worker::CheckOutputPaths(options_); !status.ok())
      return TrainFault(status.message());
    const auto inputs = CatchOutOfMemory("--data_dir", [&] { return worker::LoadInputs(options_); });
    if (absl::IsResourceExhausted(inputs.status())) return Failure(inputs.status());
    if (!inputs.ok()) return TrainFault(inputs.status().message());
    const auto division = worker::PartitionModel(inputs->trained(), options_);
    if (!division.ok()) return TrainFault(division.status().message());
    if (division->divided()) {
      if (const absl::Status divides = worker::RefuseTablesOfDividedModel(options_, inputs->model);
          !divides.ok()) {
        return TrainFault(divides.message());
      }
    }
    const absl::Status groups = worker::CheckGroups(*division, options_, num_workers_);
    if (!groups.ok()) return TrainFault(groups.message());
    divided_ = division->divided();
    if (options_.replicas_to_aggregate > num_workers_ / division->tasks) {
      return TrainFault(absl::StrCat("--replicas_to_aggregate: ", options_.replicas_to_aggregate,
                                     " is more than ", num_workers_ / division->tasks, " groups of workers"));
    }
    const bool validation = inputs->data.validation != nullptr && options_.validation;
    const auto callbacks =
        worker::Callbacks::Create(options_.callbacks, inputs->model, inputs->metrics, validation);
    if (!callbacks.ok()) return TrainFault(callbacks.status().message());
    if (!worker::InitialValuesSource(options_).empty() && worker::CheckpointSource(options_).empty())
      Log().Write(worker::DescribeInitialValues(options_), cairn::LogLevel::kInfo);
    return Launch(app);
  }

 private:
  int Launch(const CLI::App& app) const {
    const auto job = LocalJob::Prepare(
        {.servers = num_servers_, .workers = num_workers_, .access = access_, .log_level = LogLevel(app)},
        Log());
    if (!job.ok()) return Failure(job.status());
    std::vector<Supervisor::Task> tasks = PlanLocalCluster({
        .program_directory = job->program_directory,
        .server_ports = Numbers(job->server_ports),
        .worker_ports = Numbers(job->worker_ports),
        .model = options_.model,
        .train_flags = WorkerFlags(app),
        .summary = options_.summary,
        .server_memory_limit = ps_memory_limit_,
        .tls_flags = job->tls_flags(),
        .metrics_host = metrics_.host,
        .metrics_port = metrics_.port,
        .log_level = LogLevel(app),
        .log_format = options_.log_format,
        .threads = options_.threads > 0 ? options_.threads : std::max(1, UsableCores() / num_workers_),
        // Without checkpoints or backups a restarted server cannot be restored.
        .server_restarts = options_.train_dir.empty() && options_.ps_replication == 0 ? 0 : max_restarts_,
        .worker_restarts = max_restarts_,
        .elastic = options_.elastic,
        .workers_listen = options_.all_reduce() || divided_,
        .environment = job->environment(),
    });
    for (const std::string& fault : faults_) {  // TASK:POINT:PASSING:SIGNAL
      const std::pair<std::string, std::string> parts = absl::StrSplit(fault, absl::MaxSplits(':', 1));
      for (Supervisor::Task& task : tasks) {
        if (task.child.name == parts.first) task.first_life = {absl::StrCat("--fault=", parts.second)};
      }
    }
    const LocalTraces traces(trace_, tasks);
    IgnoreBrokenPipes();
    if (options_.elastic) PrintHowToJoin(job->servers());
    if (num_servers_ > 0 && (verbose_ || isatty(STDERR_FILENO))) job->PrintHowToWatch(Log());
    Supervisor supervisor({.program = kTrainProgram,
                           .clears_line = isatty(STDOUT_FILENO) && isatty(STDERR_FILENO),
                           .json = options_.log_format == "json",
                           .progress = [&] { return job->step(); }});
    return MergeTraces(traces, supervisor.Run(tasks));
  }

  // Returns `code`, the exit code of the job, or kFailure if the job succeeded but the timeline could not be
  // written.
  int MergeTraces(const LocalTraces& traces, int code) const {
    std::vector<std::string> missing;
    const absl::Status status = traces.Merge(missing);
    if (!missing.empty()) {
      Log().Write(absl::StrCat("the timeline lacks the tasks ", absl::StrJoin(missing, ", ")));
    }
    if (status.ok()) return code;
    Log().Write(absl::StrCat("--trace_file: ", status.message()));
    return code != 0 ? code : static_cast<int>(ExitCode::kFailure);
  }

  LauncherLog Log() const { return {.program = kTrainProgram, .json = options_.log_format == "json"}; }

  void PrintHowToJoin(const std::vector<std::string>& servers) const {
    std::fprintf(
        stderr,
        "%s: more workers may join: cairn-worker --job_name=worker --task_index=%d --ps_hosts=%s and "
        "the same training flags\n",
        kTrainProgram, num_workers_, absl::StrJoin(servers, ",").c_str());
  }

  // The given training flags, which are the same for every worker.
  static std::vector<std::string> WorkerFlags(const CLI::App& app) {
    CLI::App declares;
    worker::TrainOptions unused;
    AddTrainOptions(declares, unused);
    std::vector<std::string> flags = GivenFlags(app, declares);
    flags.erase(std::remove_if(flags.begin(), flags.end(),
                               [](const std::string& flag) {
                                 return std::any_of(
                                     std::begin(kOwnFlags), std::end(kOwnFlags),
                                     [&](const char* own) { return absl::StartsWith(flag, own); });
                               }),
                flags.end());
    return flags;
  }

  std::string LogLevel(const CLI::App& app) const {
    if (!app.get_option("--log_level")->empty()) return options_.log_level;
    return verbose_ || options_.devices.log_device_placement ? "info" : "warning";
  }

  std::string model_;
  int num_servers_ = 1;
  int num_workers_ = 1;
  int max_restarts_ = 100;
  bool verbose_ = false;
  bool divided_ = false;  // --place distributes the model over workers
  std::string ps_memory_limit_;
  std::vector<std::string> faults_;
  worker::TrainOptions options_;
  net::Access access_;
  monitor::MetricsFlags metrics_;
  TraceFlags trace_;
};

}  // namespace

std::unique_ptr<Command> MakeTrainCommand() {
  return std::make_unique<TrainCommand>();
}

}  // namespace cairn::cli
