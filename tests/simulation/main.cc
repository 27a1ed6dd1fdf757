// protocol_simulation [SEEDS [FIRST]]: simulates the jobs of SEEDS seeds, beginning with FIRST, and exits
// with 1 at the first job that breaks a rule.
#include <cstdio>
#include <cstdlib>

#include "common/core/log.h"
#include "tests/simulation/simulation.h"

int main(int argc, char** argv) {
  using cairn::simulation::Outcome;
  cairn::StartLogging("simulation", cairn::LogLevel::kError);
  const uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 300;
  const uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  Outcome total;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const Outcome outcome = cairn::simulation::Simulate(seed);
    if (!outcome.violations.empty()) {
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), outcome.setting.c_str());
      for (const std::string& violation : outcome.violations) std::printf("  %s\n", violation.c_str());
      return 1;
    }
    total.coverage += outcome.coverage;
    total.events += outcome.events;
    total.deaths += outcome.deaths;
    total.pauses += outcome.pauses;
    total.breaks += outcome.breaks;
    total.deferred += outcome.deferred;
    total.servers_killed += outcome.servers_killed;
    total.servers_paused += outcome.servers_paused;
    total.places_taken += outcome.places_taken;
  }
  const auto& seen = total.coverage;
  std::printf(
      "%llu jobs, no rule broken: %lld events, %lld deaths, %lld pauses, %lld breaks; %lld updates; answers: "
      "%lld accepted (%lld deferred), %lld stale, %lld rejected, %lld finished, %lld repeated; %lld examples "
      "assigned; servers: %lld killed, %lld paused, %lld snapshots, %lld rollbacks, %lld promotions\n",
      static_cast<unsigned long long>(seeds), static_cast<long long>(total.events),
      static_cast<long long>(total.deaths), static_cast<long long>(total.pauses),
      static_cast<long long>(total.breaks), static_cast<long long>(seen.updates),
      static_cast<long long>(seen.accepted), static_cast<long long>(total.deferred),
      static_cast<long long>(seen.stale), static_cast<long long>(seen.rejected),
      static_cast<long long>(seen.finished), static_cast<long long>(seen.duplicate),
      static_cast<long long>(seen.examples), static_cast<long long>(total.servers_killed),
      static_cast<long long>(total.servers_paused), static_cast<long long>(seen.snapshots),
      static_cast<long long>(seen.rolled_back), static_cast<long long>(total.places_taken));
  // A simulation in which too little happens proves nothing.
  for (const int64_t count :
       {total.deaths, total.pauses, total.breaks, total.deferred, seen.updates, seen.stale, seen.rejected,
        seen.finished, seen.duplicate, seen.examples, seen.snapshots, total.servers_killed,
        total.servers_paused, seen.rolled_back, total.places_taken}) {
    if (count < static_cast<int64_t>(seeds / 10)) {
      std::printf("too little happened for this to mean anything\n");
      return 1;
    }
  }
  return 0;
}
