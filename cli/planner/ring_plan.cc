#include "cli/planner/ring_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/monitor/status_page.h"

namespace cairn::cli {
namespace {

constexpr double kBackward = 2.0 / 3;
// The largest chunk that a worker sends: worker/peer/chunks.h.
constexpr double kChunk = 256 << 10;
// Smaller relative differences count as equal.
constexpr double kNearly = 1.02;

std::string Comparison(double ring, const StepPlan& plan) {
  const char* const which = plan.step > ring * kNearly   ? "faster than"
                            : ring > plan.step * kNearly ? "slower than"
                                                         : "as fast as";
  return absl::StrCat(which, " with ", plan.servers, " ps");
}

}  // namespace

RingPlan PlanRing(const PlanInput& input) {
  double bytes = 0;
  for (const net::VariableInfo& variable : input.variables) {
    bytes += static_cast<double>(variable.shape.num_elements()) * sizeof(float);
  }
  const double workers = input.workers;
  const double rate = std::min(input.link * kGoodput, input.task_rate) / 8;
  const double passes = 2 * (workers - 1);  // transfers to a neighbour, each of 1 / workers of the bytes
  const double transfer = passes / workers * bytes / rate;
  const double last_bucket = passes * std::min(kChunk, bytes / workers) / rate;
  RingPlan plan = {.compute = input.step_compute};
  plan.ring = std::max(transfer - kBackward * input.step_compute, last_bucket);
  plan.update = bytes * (3 + 2 * input.optimizer_slots) / input.memory_bandwidth;
  plan.latency = (workers - 1) * input.round_trip;
  plan.step = plan.compute + plan.ring + plan.update + plan.latency;
  plan.worker_bytes = static_cast<int64_t>(passes / workers * bytes);
  return plan;
}

std::string AsText(const PlanInput& input, const RingPlan& ring, const StepPlan& plan, const StepPlan& best) {
  std::string compared = Comparison(ring.step, plan);
  if (best.servers != plan.servers) absl::StrAppend(&compared, ", ", Comparison(ring.step, best));
  return absl::StrFormat(
      "all-reduce: %.1f ms per step without servers, %s\n"
      "            each worker's link %s each way, ring %.1f ms, update %.1f ms, latency %.1f ms; as fast as "
      "%.2f workers without communication\n",
      ring.step * 1e3, compared, monitor::InBytes(static_cast<double>(ring.worker_bytes)), ring.ring * 1e3,
      ring.update * 1e3, ring.latency * 1e3,
      ring.step == 0 ? input.workers : input.workers * ring.compute / ring.step);
}

}  // namespace cairn::cli
