// The checks of `cairn check`, for use before a job starts or when it does not start. Each finding has a
// remedy.
//
// The checks change nothing: they declare no job, join no membership and leave no file behind.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/core/clock.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/security/access.h"
#include "worker/devices/device_choice.h"
#include "worker/options/options.h"

namespace cairn::cli {

struct Finding {
  std::string subject;   // "ps/1", "data", "model"
  bool fault = false;    // false: the check passed
  std::string what;      // the observation
  std::string remedy{};  // how to fix the fault
};

struct Examination {
  net::ResolvedCluster cluster;                // self.job is empty if this process is no task of the cluster
  net::Access access{};                        // validated by CheckAccess()
  worker::TrainOptions options{};              // uses --model, --data_dir, --train_dir and --device, if given
  Duration timeout = std::chrono::seconds(3);  // for each server

  int64_t memory_limit = 0;      // --memory_limit of servers that do not answer, in bytes; 0: not checked
  int64_t descriptor_limit = 0;  // maximum number of open files of a process; 0: not checked

  // The environment; tests replace it.
  worker::DeviceMakers backends{};
  std::function<double()> unix_seconds{};  // local clock
  // The free space of the file system that contains `directory`.
  std::function<absl::StatusOr<int64_t>(const std::string& directory)> free_bytes{};
};

// An Examination with the backends, clock and disks of this machine.
Examination OfThisMachine(net::ResolvedCluster cluster);

// Runs all checks that the given flags allow, one after another.
std::vector<Finding> Examine(const Examination& examination);

// One line per finding, "ps/1    FAULT  ...", each fault followed by its remedy, and the counts at the end.
std::string AsText(const std::vector<Finding>& findings);

}  // namespace cairn::cli
