// `cairn run`: starts servers and copies of any program on this machine, as `cairn train` starts Cairn's own
// workers.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cli/commands/command.h"
#include "cli/launcher/foreign_workers.h"
#include "cli/launcher/local_cluster.h"
#include "cli/launcher/local_job.h"
#include "cli/launcher/ports.h"
#include "cli/launcher/supervisor.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/memory/memory_size.h"
#include "common/monitor/http_server.h"
#include "common/net/security/access.h"
#include "common/system/cores.h"
#include "common/system/standard_streams.h"

namespace cairn::cli {
namespace {

constexpr char kRunProgram[] = "cairn run";
// The servers of a job end by themselves. How long they may run after the last worker, which may not have
// taken part in a job.
constexpr auto kServersGrace = std::chrono::seconds(5);

int RunFault(absl::string_view text) {
  return static_cast<int>(UsageError(kRunProgram, text));
}

int RunFailure(const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", kRunProgram, std::string(status.message()).c_str());
  return static_cast<int>(ExitCode::kFailure);
}

class RunCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    AddFlags(app, {{"PROGRAM",
                    &program_,
                    "Program of every worker, and its arguments; a file that ends in .py is run with python3",
                    {},
                    kProgram}});
    AddFlags(app, "Local cluster",
             {{"--ps N", &num_servers_,
               "Number of parameter servers; 0: none, for programs that use all-reduce", WholeNumberFrom(0)},
              {"--workers N", &num_workers_, "Number of workers; they share the cores", WholeNumberFrom(1)},
              {"--threads N", &threads_,
               "OMP_NUM_THREADS of each worker; 0: as in the environment, else the cores divided by the "
               "workers",
               WholeNumberBetween(0, kMaxThreads)},
              {"--ps_memory_limit SIZE", &ps_memory_limit_,
               "Memory that the job may use on each server, for example 4GiB or 500MB; sets cairn-ps "
               "--memory_limit",
               ParsedBy(&ParseMemorySize)}});
    AddFlags(app, "Fault tolerance",
             {{"--max_restarts N", &max_restarts_,
               "Number of times that each task is restarted that another process killed or that exited with "
               "138",
               WholeNumberFrom(0)}});
    net::AddAccessFlags(app, access_);
    monitor::AddMetricsFlags(app, metrics_);
    AddLogFlags(app, log_level_, log_format_);
  }

  int Run(const CLI::App&) override {
    if (program_.empty()) return RunFault("which program? `cairn run --ps 1 --workers 2 train.py`");
    if (const absl::Status access = net::CheckAccess(access_, std::getenv(net::kTokenVariable));
        !access.ok()) {
      return RunFault(access.message());
    }
    if (metrics_.port.value_or(0) + num_servers_ > 65536) {
      return RunFault(absl::StrCat("--metrics_port: each server needs a port, but the ", num_servers_,
                                   " ports from ", *metrics_.port, " on exceed port 65535"));
    }
    const char* path = std::getenv("PATH");
    const auto command = ResolveProgram(program_, path != nullptr ? path : "");
    if (!command.ok()) return RunFault(command.status().message());
    return Launch(*command);
  }

 private:
  int Launch(const std::vector<std::string>& command) const {
    const LauncherLog log = {.program = kRunProgram, .json = log_format_ == "json"};
    const auto job = LocalJob::Prepare(
        {.servers = num_servers_, .workers = num_workers_, .access = access_, .log_level = log_level_}, log);
    if (!job.ok()) return RunFailure(job.status());
    const auto master_port = PortForProgram();
    if (!master_port.ok()) return RunFailure(master_port.status());
    const std::vector<int> server_ports = Numbers(job->server_ports),
                           worker_ports = Numbers(job->worker_ports);
    std::vector<Supervisor::Task> tasks = PlanLocalServers({.program_directory = job->program_directory,
                                                            .server_ports = server_ports,
                                                            .worker_ports = worker_ports,
                                                            .server_memory_limit = ps_memory_limit_,
                                                            .tls_flags = job->tls_flags(),
                                                            .metrics_host = metrics_.host,
                                                            .metrics_port = metrics_.port,
                                                            .log_level = log_level_,
                                                            .log_format = log_format_,
                                                            .server_restarts = max_restarts_,
                                                            .environment = job->environment()});
    std::vector<Supervisor::Task> workers =
        PlanForeignWorkers({.command = command,
                            .server_ports = server_ports,
                            .worker_ports = worker_ports,
                            .master_port = *master_port,
                            .threads = threads_,
                            .default_threads = std::max(1, UsableCores() / num_workers_),
                            .restarts = max_restarts_,
                            .environment = job->environment()});
    std::move(workers.begin(), workers.end(), std::back_inserter(tasks));
    IgnoreBrokenPipes();
    if (num_servers_ > 0 && isatty(STDERR_FILENO)) job->PrintHowToWatch(log);
    Supervisor supervisor(
        {.program = kRunProgram, .json = log_format_ == "json", .end_limit = kServersGrace, .progress = [&] {
           return job->step();
         }});
    return supervisor.Run(tasks);
  }

  // A free port that the program may listen on without SO_REUSEPORT: it is not reserved any longer.
  static absl::StatusOr<int> PortForProgram() {
    CAIRN_ASSIGN_OR_RETURN(const ReservedPort port, ReservedPort::Reserve());
    return port.port();
  }

  std::vector<std::string> program_;
  int num_servers_ = 1;
  int num_workers_ = 1;
  int threads_ = 0;
  int max_restarts_ = 100;
  std::string ps_memory_limit_;
  net::Access access_;
  monitor::MetricsFlags metrics_;
  std::string log_level_ = "warning", log_format_ = "text";
};

}  // namespace

std::unique_ptr<Command> MakeRunCommand() {
  return std::make_unique<RunCommand>();
}

}  // namespace cairn::cli
