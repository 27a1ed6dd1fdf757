// What a step of all-reduce costs on the same cluster without its servers: beside planner.h's, in its terms.
//
//   ring     of S bytes each of N workers sends (N - 1) / N S to the right twice, sums and then means:
//            2 (N - 1) / N S / rate, of which backward hides what it can, but never the last bucket
//   update   every worker reads the mean, the values and the slots, and writes values and slots:
//            (3 + 2 slots) S / memory
//   latency  of the last bucket, 2 (N - 1) ways to a neighbour: N - 1 round trips
//
// All workers are equally far from each other: what a ring across a slow link costs is what that link costs.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "cli/planner.h"

namespace cairn::cli {

struct RingPlan {
  // Seconds.
  double compute = 0, ring = 0, update = 0, latency = 0;  // ring: what backward does not hide
  double step = 0;                                        // their sum
  int64_t worker_bytes = 0;                               // of one worker's link in a step, each way
};

RingPlan PlanRing(const PlanInput& input);

// "all-reduce: ... a step, ... than with N ps": two lines for `cairn plan`.
std::string AsText(const PlanInput& input, const RingPlan& ring, const StepPlan& plan, const StepPlan& best);

}  // namespace cairn::cli
