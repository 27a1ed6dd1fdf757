// One job, from its first worker's start to its last one's end, in one thread: real servers (Server,
// Sequencer, policies, Shard, Ledger, Membership, the log and the copies' items as messages) and simulated
// workers and chief, on a network and a clock of its own. Everything takes a random time; workers die, pause
// and come back; streams and the links between servers break, and what was on its way is lost. Servers die
// and come back with nothing, so that all are set back, or have copies that take their place. All of it
// follows from the seed.
//
// Not simulated: chunks and gRPC; threads; files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulation/checker.h"

namespace cairn::simulation {

struct Outcome {
  std::string setting;  // as text: "MODE_SYNC, 3 servers, 7 workers, ..."
  std::vector<std::string> violations;
  Checker::Coverage coverage;
  int64_t events = 0, deaths = 0, pauses = 0, breaks = 0, held = 0;
  int64_t servers_killed = 0, servers_paused = 0, places_taken = 0;
};

Outcome Simulate(uint64_t seed);

}  // namespace cairn::simulation
