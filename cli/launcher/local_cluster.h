// The commands that start a cluster on this machine; `cairn train` and `cairn run` pass them to the
// Supervisor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cli/launcher/supervisor.h"

namespace cairn::cli {

struct LocalClusterArgs {
  std::string program_directory;           // directory of cairn-ps and cairn-worker
  std::vector<int> server_ports;           // [ps]; empty with --mode allreduce
  std::vector<int> worker_ports{};         // [worker]
  std::string model{};                     // path
  std::vector<std::string> train_flags{};  // for every worker, as given: "--epochs=5"
  std::string summary{};                   // --summary of the chief; empty: none
  std::string server_memory_limit{};       // per server, as given: "4GiB"; empty: the default of cairn-ps
  std::vector<std::string> tls_flags{};    // for every task, as given: "--tls_cert=a.pem"
  // --metrics_host, and --metrics_port of the first task; the other tasks use the following ports. 0: any
  // free port for each task; none: no metrics.
  std::string metrics_host{};
  std::optional<int> metrics_port{};
  std::string log_level;
  std::string log_format = "text";
  int threads = 1;                       // per worker
  int server_restarts = 0;               // restarts after failures, per server
  int worker_restarts = 0;               // restarts after failures, per worker
  bool elastic = false;                  // workers except the chief may leave
  bool workers_listen = false;           // workers listen on their ports for other workers
  std::vector<std::string> environment;  // the environment of every task: "NAME=value"
};

// "127.0.0.1:2222".
std::string LocalAddress(int port);

// Adds "NAME=value" to an environment that has no entry of that name.
void SetUnlessGiven(std::vector<std::string>& environment, absl::string_view name, absl::string_view value);

// The servers alone. They do not use the members of `args` about workers, except their ports.
std::vector<Supervisor::Task> PlanLocalServers(const LocalClusterArgs& args);

// The tasks of the cluster, servers first. Worker 0 is the chief and shares the stdout of this process.
// Unless OMP_WAIT_POLICY is set, idle OpenMP threads sleep: workers that spin on the same cores slow each
// other down.
std::vector<Supervisor::Task> PlanLocalCluster(const LocalClusterArgs& args);

}  // namespace cairn::cli
