// Simulates one job in one thread, from the start of its first worker to the end of its last one. The servers
// are real (Server, Sequencer, policies, Shard, Ledger, Membership, the log and the replicated items as
// messages); workers and chief, network and clock are simulated. Everything takes a random time. Workers die,
// pause and return; streams and links between servers break, and messages under way are lost. Servers die and
// return without state, so that all are rolled back, or their backups are promoted. All of it follows from
// the seed.
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
  int64_t events = 0, deaths = 0, pauses = 0, breaks = 0, deferred = 0;
  int64_t servers_killed = 0, servers_paused = 0, places_taken = 0;
};

Outcome Simulate(uint64_t seed);

}  // namespace cairn::simulation
