// What `cairn check` finds out before a job is started, or when one does not start: each finding with its
// remedy.
//
// It only asks, and changes nothing: no job is declared, no member joins, no file stays.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/core/clock.h"
#include "common/net/access.h"
#include "common/net/cluster_spec.h"
#include "worker/device_choice.h"
#include "worker/options.h"

namespace cairn::cli {

struct Finding {
  std::string subject;   // "ps/1", "data", "model"
  bool fault = false;    // else what was found in order
  std::string what;      // what is so
  std::string remedy{};  // of a fault: what to do
};

struct Examination {
  net::ResolvedCluster cluster;    // self.job is empty for nobody in particular
  net::Access access{};            // checked
  worker::TrainOptions options{};  // --model, --data_dir, --train_dir and --device, as far as given
  Duration timeout = std::chrono::seconds(3);  // for each server

  int64_t descriptor_limit = 0;  // files that one process may have open here; 0: not looked at

  // The world, or a test's.
  worker::DeviceMakers backends{};
  std::function<double()> unix_seconds{};                                             // our clock
  std::function<absl::StatusOr<int64_t>(const std::string& directory)> free_bytes{};  // of its file system
};

// With the backends, clock and disks of this machine.
Examination OfThisMachine(net::ResolvedCluster cluster);

// All that can be looked at with what is given, one after another.
std::vector<Finding> Examine(const Examination& examination);

// "ps/1    FAULT  ...", a line each with the remedy below, and at the end how many.
std::string AsText(const std::vector<Finding>& findings);

}  // namespace cairn::cli
