// The workers of `cairn run`: copies of any program, which learn their place in the cluster from their
// environment.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/launcher/supervisor.h"

namespace cairn::cli {

// The command that runs `program`, a program and its arguments. A name without a slash is looked up in `path`,
// a list of directories like PATH. A file that ends in .py is run with the first python3, or else python, in
// `path`, unless it is executable and begins with "#!"; it may be in the current directory. NOT_FOUND, or
// INVALID_ARGUMENT if the file cannot be executed.
absl::StatusOr<std::vector<std::string>> ResolveProgram(const std::vector<std::string>& program,
                                                        const std::string& path);

struct ForeignWorkersArgs {
  std::vector<std::string> command;      // of every worker
  std::vector<int> server_ports;         // [ps]; may be empty
  std::vector<int> worker_ports;         // [worker]
  int master_port = 0;                   // MASTER_PORT; nothing listens there
  int threads = 0;                       // OMP_NUM_THREADS; 0: see default_threads
  int default_threads = 1;               // OMP_NUM_THREADS unless `environment` has one
  int restarts = 0;                      // restarts after failures, per worker
  std::vector<std::string> environment;  // "NAME=value"; entries about the place in a cluster are replaced
};

// One task for each of `worker_ports`. All have Role::kWorker: a program without Cairn's flags has no chief
// that the launcher knows. The environment of worker R of N:
//   CAIRN_SERVERS             "127.0.0.1:2222,127.0.0.1:2223"
//   CAIRN_WORKERS             the addresses of all workers, in the same form
//   CAIRN_REUSE_PORT          1: the launcher reserves the workers' ports, so they listen with SO_REUSEPORT
//   RANK, LOCAL_RANK          R
//   WORLD_SIZE, LOCAL_WORLD_SIZE  N
//   MASTER_ADDR, MASTER_PORT  a free address for torch.distributed
//   TF_CONFIG                 the cluster, and "task": {"type": "worker", "index": R}
//   OMP_NUM_THREADS           the worker's share of the cores
//   PYTHONUNBUFFERED          1 unless set: lines are shown when they are printed
std::vector<Supervisor::Task> PlanForeignWorkers(const ForeignWorkersArgs& args);

}  // namespace cairn::cli
