// A whole cluster on this machine, as commands to start: what `cairn train` hands to the Supervisor.
#pragma once

#include <string>
#include <vector>

#include "cli/supervisor.h"

namespace cairn::cli {

struct LocalClusterArgs {
  std::string program_directory;         // where cairn-ps and cairn-worker are
  std::vector<int> server_ports;         // [ps]
  std::vector<int> worker_ports;         // [worker]
  std::string model;                     // path
  std::vector<std::string> train_flags;  // for every worker, as given: "--epochs=5"
  std::string summary;                   // for the chief alone; empty: none
  std::string log_level;
  int threads = 1;                       // of each worker
  std::vector<std::string> environment;  // "NAME=value": ours
};

// Servers first; worker 0 is the chief and shares our stdout. Idle OpenMP threads sleep unless the
// environment wants otherwise: several workers spinning on the same cores slow each other down many times
// over.
std::vector<Supervisor::Task> PlanLocalCluster(const LocalClusterArgs& args);

}  // namespace cairn::cli
