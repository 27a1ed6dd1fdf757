// What a synchronous step of a cluster costs, from a model's sizes and the rates of links: `cairn plan`.
//
// The model of a step, after the order that worker/README.md and ps/README.md describe. All workers are alike
// and begin together; every task has a machine and a link of its own, as fast up as down; nothing else uses
// them. A worker computes forward, one third of the computation, then backward; gradients leave from the end
// of forward on, while backward goes on.
//
//   push     S bytes of gradients leave each worker; the largest server takes in its part s of them from each
//   of W workers:
//            max(S, W s) / rate, of which backward hides what it can, but never the last chunk
//   update   the server reads W gradients, the values and the optimizer's slots, and writes values and slots:
//            (W + 2 + 2 slots) of its bytes of values / memory
//   pull     as the push, the other way and of values, and hidden by nothing: an answer begins when its
//   update is complete
//
// Of large values the update is made, and sent, piece by piece while gradients arrive (common/net/ahead.h).
// Then the update costs what its last piece does, and the pull only what goes on when all gradients are up:
// the last piece at least.
//
//   ahead    the next forward pass runs on the layers whose values have come, while the others come (on the
//   CPU); the layer
//            of the largest variable waits for it: (1 - that variable's share) of a forward pass, at most the
//            pull
//
//   latency  the last chunk's way, the report to ps/0 and its decision's way back, the answer's way: two
//   round trips
//
// `rate` is the link's goodput, or what one task sends or takes at most, where that is less. Pure functions;
// any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/placement.h"

namespace cairn::cli {

// The part of an Ethernet link's rate that TCP's payload has: 1448 of 1538 bytes a packet.
constexpr double kGoodput = 1448.0 / 1538;

struct PlanInput {
  std::vector<net::VariableInfo> variables;
  int workers = 1;
  double link = 0;                // bits per second, each way
  double step_compute = 0;        // seconds: forward and backward of one batch on one worker
  double round_trip = 0.0002;     // seconds
  double task_rate = 8e9;         // bits per second
  double memory_bandwidth = 8e9;  // bytes per second of a server's update
  int optimizer_slots = 0;        // floats kept for each parameter beside its value
  bool norms = false;             // the optimizer takes norms: updates are not made while gradients arrive
  // Bytes of an element of a gradient, and of a value, on its way.
  double gradient_bytes = sizeof(float), value_bytes = sizeof(float);
};

struct StepPlan {
  int servers = 0;
  // Seconds. push: what backward does not hide; update and pull: what gradients on their way do not.
  double compute = 0, push = 0, update = 0, pull = 0, latency = 0;
  double ahead = 0;  // of compute, what passes while values come
  double step = 0;   // the sum of the others, less `ahead`
  // Bytes a step: of gradients, and of values the other way.
  int64_t worker_bytes = 0, worker_pull_bytes = 0;  // of one worker's link
  int64_t server_bytes = 0, server_pull_bytes = 0;  // of the busiest server's
  double imbalance = 1;                             // its bytes as a ratio of the servers' mean
  const char* bottleneck = "";

  // Of W workers' examples: how many lone workers do as many, each in the computation's time.
  double speedup(int workers) const { return step == 0 ? workers : workers * compute / step; }
};

// `servers` at least 1.
StepPlan PlanStep(const PlanInput& input, int servers);

// The fewest servers within 2 % of the shortest step that up to `most` of them give.
StepPlan BestPlan(const PlanInput& input, int most);

// "10Gbit", "100 Mbit", "2.5Gbit/s" -> bits per second. INVALID_ARGUMENT for anything else and for 0.
absl::StatusOr<double> ParseLinkRate(absl::string_view text);
// Likewise in seconds: "30ms", "1.5s", "200us", and a plain number of seconds.
absl::StatusOr<double> ParseSeconds(absl::string_view text);

// What `cairn plan` prints.
std::string AsText(const PlanInput& input, const StepPlan& plan, const StepPlan& best);
// How many open files (ulimit -n) each server and each worker needs.
std::string DescriptorsAsText(const PlanInput& input, int servers);
// Milliseconds a step and speed-up, for each number of workers (rows) and of servers (columns).
std::string AsTable(PlanInput input, absl::Span<const int> workers, absl::Span<const int> servers);

}  // namespace cairn::cli
