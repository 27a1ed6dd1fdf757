// The cost of one all-reduce step on the same cluster without servers, in the terms of planner.h.
//
//   ring     Each of N workers sends (N - 1) / N of S bytes to its right neighbour twice, first sums, then
//            means: 2 (N - 1) / N S / rate. Backward overlaps with all of this except the last bucket.
//   update   Every worker reads the mean, the values and the slots, and writes values and slots:
//            (3 + 2 slots) S / memory bandwidth.
//   latency  The last bucket makes 2 (N - 1) hops to a neighbour: N - 1 round trips.
//
// Every link between workers has the same rate; in a real ring the slowest link decides.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "cli/planner/planner.h"

namespace cairn::cli {

struct RingPlan {
  // Seconds. ring: the part that does not overlap with backward.
  double compute = 0, ring = 0, update = 0, latency = 0;
  double step = 0;           // compute + ring + update + latency
  int64_t worker_bytes = 0;  // per step on one worker's link, in each direction
};

RingPlan PlanRing(const PlanInput& input);

// "all-reduce: ... a step, ... than with N ps": two lines for `cairn plan`.
std::string AsText(const PlanInput& input, const RingPlan& ring, const StepPlan& plan, const StepPlan& best);

}  // namespace cairn::cli
