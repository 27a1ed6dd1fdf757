// One job, from its first worker's start to its last one's end, in one thread: real servers (Server,
// Sequencer, policies, Shard, Ledger, Membership, the log as messages) and simulated workers, on a network
// and a clock of its own. Everything takes a random time; workers die, pause and come back; streams and the
// links between servers break, and what was on its way is lost. All of it follows from the seed.
//
// Not simulated: servers that die, which ends a job; chunks and frames; threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "common/core/random.h"
#include "ps/server.h"
#include "tests/simulation/checker.h"
#include "tests/support/fake_clock.h"

namespace cairn::simulation {

// What a seed stands for, as text: "sync, 3 servers, 7 workers, ...".
struct Outcome {
  std::string setting;
  std::vector<std::string> violations;
  Checker::Coverage coverage;
  int64_t events = 0, deaths = 0, pauses = 0, breaks = 0, held = 0;
};

Outcome Simulate(uint64_t seed);

}  // namespace cairn::simulation
