// A whole cluster on this machine, as commands to start: what `cairn train` hands to the Supervisor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/supervisor.h"

namespace cairn::cli {

struct LocalClusterArgs {
  std::string program_directory;         // where cairn-ps and cairn-worker are
  std::vector<int> server_ports;         // [ps]; none where workers do without
  std::vector<int> worker_ports;         // [worker]
  std::string model;                     // path
  std::vector<std::string> train_flags;  // for every worker, as given: "--epochs=5"
  std::string summary;                   // for the chief alone; empty: none
  std::string server_memory_limit;       // of each server, as given: "4GiB"; empty: its default
  std::vector<std::string> tls_flags;    // for every task, as given: "--tls_cert=a.pem"
  // --metrics_host, and the first task's --metrics_port, the others' following; 0: any for each; none: not
  // served.
  std::string metrics_host{};
  std::optional<int> metrics_port{};
  std::string log_level;
  std::string log_format = "text";
  int threads = 1;                       // of each worker
  int server_restarts = 0;               // of each, when it is lost
  int worker_restarts = 0;               // likewise
  bool elastic = false;                  // workers but the chief may leave
  bool workers_listen = false;           // on their ports, each for its neighbour
  std::vector<std::string> environment;  // "NAME=value": ours
};

// Servers first; worker 0 is the chief and shares our stdout. Idle OpenMP threads sleep unless the
// environment wants otherwise: several workers spinning on the same cores slow each other down many times
// over.
std::vector<Supervisor::Task> PlanLocalCluster(const LocalClusterArgs& args);

}  // namespace cairn::cli
