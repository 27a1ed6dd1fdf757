#include "cli/launcher/local_cluster.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn::cli {
namespace {

std::string Addresses(const std::vector<int>& ports) {
  return absl::StrJoin(ports, ",", [](std::string* out, int port) { out->append(LocalAddress(port)); });
}

std::vector<std::string> Environment(std::vector<std::string> environment) {
  SetUnlessGiven(environment, "OMP_WAIT_POLICY", "passive");
  return environment;
}

// The command that starts a task, with the flags that all tasks have: cluster, TLS, metrics, logging.
// `place`: the index of the task among all tasks.
std::vector<std::string> CommonCommand(const LocalClusterArgs& args, const char* job, size_t index,
                                       size_t place) {
  std::vector<std::string> command = {absl::StrCat(args.program_directory, "/cairn-", job),
                                      absl::StrCat("--job_name=", job), absl::StrCat("--task_index=", index)};
  if (!args.server_ports.empty())
    command.push_back(absl::StrCat("--ps_hosts=", Addresses(args.server_ports)));
  command.push_back(absl::StrCat("--worker_hosts=", Addresses(args.worker_ports)));
  command.push_back(absl::StrCat("--log_level=", args.log_level));
  if (args.log_format != "text") command.push_back(absl::StrCat("--log_format=", args.log_format));
  command.insert(command.end(), args.tls_flags.begin(), args.tls_flags.end());
  if (args.metrics_port.has_value()) {
    const size_t port = *args.metrics_port == 0 ? 0 : static_cast<size_t>(*args.metrics_port) + place;
    command.push_back(absl::StrCat("--metrics_port=", port));
    command.push_back(absl::StrCat("--metrics_host=", args.metrics_host));
  }
  return command;
}

}  // namespace

std::string LocalAddress(int port) {
  return absl::StrCat("127.0.0.1:", port);
}

void SetUnlessGiven(std::vector<std::string>& environment, absl::string_view name, absl::string_view value) {
  const std::string start = absl::StrCat(name, "=");
  const bool given = std::any_of(environment.begin(), environment.end(),
                                 [&](const std::string& entry) { return absl::StartsWith(entry, start); });
  if (!given) environment.push_back(absl::StrCat(start, value));
}

std::vector<Supervisor::Task> PlanLocalServers(const LocalClusterArgs& args) {
  const std::vector<std::string> environment = Environment(args.environment);
  std::vector<Supervisor::Task> tasks;
  for (size_t i = 0; i < args.server_ports.size(); ++i) {
    std::vector<std::string> command = CommonCommand(args, "ps", i, i);
    command.push_back(absl::StrCat("--listen=", LocalAddress(args.server_ports[i])));
    command.push_back("--reuse_port");
    if (!args.server_memory_limit.empty()) {
      command.push_back(absl::StrCat("--memory_limit=", args.server_memory_limit));
    }
    tasks.push_back(
        {.role = Supervisor::Role::kServer,
         .child = {.name = absl::StrCat("ps/", i), .command = command, .environment = environment},
         .restarts = args.server_restarts});
  }
  return tasks;
}

std::vector<Supervisor::Task> PlanLocalCluster(const LocalClusterArgs& args) {
  const std::vector<std::string> environment = Environment(args.environment);
  std::vector<Supervisor::Task> tasks = PlanLocalServers(args);
  for (size_t i = 0; i < args.worker_ports.size(); ++i) {
    const bool chief = i == 0;
    std::vector<std::string> command = CommonCommand(args, "worker", i, args.server_ports.size() + i);
    command.push_back(absl::StrCat("--model=", args.model));
    command.insert(command.end(), args.train_flags.begin(), args.train_flags.end());
    command.push_back(absl::StrCat("--threads=", args.threads));
    if (args.workers_listen) {
      command.push_back(absl::StrCat("--listen=", LocalAddress(args.worker_ports[i])));
      command.push_back("--reuse_port");
    }
    if (chief && !args.summary.empty()) command.push_back(absl::StrCat("--summary=", args.summary));
    tasks.push_back({.role = chief ? Supervisor::Role::kChief : Supervisor::Role::kWorker,
                     .child = {.name = absl::StrCat("worker/", i),
                               .command = command,
                               .environment = environment,
                               .shares_stdout = chief},
                     .restarts = args.worker_restarts,
                     .may_leave = args.elastic && !chief});
  }
  return tasks;
}

}  // namespace cairn::cli
