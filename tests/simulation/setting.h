// The parameters that follow from a seed: mode and sizes of the job, durations, and the rates of faults.
#pragma once

#include <string>

#include "common/core/random.h"
#include "tests/simulation/checker.h"

namespace cairn::simulation {

inline constexpr double kLease = 10;

// The faults of servers, in addition to broken links.
enum class ServerFaults {
  kNone,
  kRolledBack,  // they die and return without state: all are rolled back to the newest snapshot
  kReplaced,    // they die, pause and return; each shard's backup is promoted
};

struct Setting {
  // `rows`: the job has a table.
  Setting(Random& random, bool rows);
  std::string ToText() const;

  Rules rules;
  int steps;                                                  // of each worker
  double longest_delay, computing, chaos_every, chaos_until;  // seconds
  int64_t batch_size = 0;                                     // of work items
  ServerFaults server_faults = ServerFaults::kNone;
  bool wait_for_return = false;  // rounds wait for workers whose lease has run out
};

}  // namespace cairn::simulation
