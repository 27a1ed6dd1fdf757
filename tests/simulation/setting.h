// What a seed stands for: the job's mode and sizes, how long things take, and what goes wrong how often.
#pragma once

#include <string>

#include "common/core/random.h"
#include "tests/simulation/checker.h"

namespace cairn::simulation {

inline constexpr double kLease = 10;

// What becomes of servers, besides breaking links.
enum class ServerFaults {
  kNone,
  kSetBack,   // they die and come back with nothing: all are set back to the newest snapshot
  kReplaced,  // they die, pause and come back; each part's copy takes its place
};

struct Setting {
  explicit Setting(Random& random);
  std::string ToText() const;

  Rules rules;
  int steps;                                                  // of each worker
  double longest_delay, computing, chaos_every, chaos_until;  // seconds
  int64_t batch_size = 0;                                     // of tickets
  ServerFaults server_faults = ServerFaults::kNone;
  bool wait_for_return = false;  // rounds wait for workers whose lease has run out
};

}  // namespace cairn::simulation
