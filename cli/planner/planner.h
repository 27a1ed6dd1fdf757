// The cost of one synchronous step of a cluster, estimated from the sizes of a model and the rates of links:
// `cairn plan`.
//
// The model of a step follows worker/README.md and ps/README.md. All workers are alike and begin together.
// Every task has its own machine and its own full-duplex link, which nothing else uses. A worker computes
// forward, one third of the computation, then backward; it sends gradients from the end of forward on, during
// backward.
//
//   push     S bytes of gradients leave each worker; the largest server receives its shard of s bytes from
//            each of W workers: max(S, W s) / rate. Backward overlaps with all of this except the last chunk.
//   update   The server reads W gradients, the values and the optimizer's slots, and writes values and slots:
//            (W + 2 + 2 slots) bytes of memory traffic per byte of its values, / memory bandwidth.
//   pull     Like push, in the other direction and for values. Nothing overlaps with it: an answer begins
//            when its update is complete.
//
// The server updates and sends a large value segment by segment while gradients arrive
// (common/net/wire/update_chunk.h). Then `update` covers only the last segment, and `pull` covers only the
// transfer that remains after all gradients have arrived, which is at least the transfer of the last segment.
//
//   ahead    On the CPU, the next forward pass starts on the layers whose values have arrived, while the
//            other values are still in transit; the layer of the largest variable waits for that variable:
//            (1 - share of that variable) of a forward pass, at most the pull.
//   latency  The last chunk goes to its server, the server reports to ps/0, ps/0 returns its decision, and
//            the server answers: two round trips. One with a single server.
//
// Embedding tables on the servers (docs/design/embedding-tables.md), whose rows are divided evenly among the servers:
//
//   compute  The worker finds the distinct ids of its batch, gathers their rows and adds up their gradients.
//   push     The gradients of the distinct rows, and the ids of the next batch, travel after backward: the layer that
//            looks up rows is the first one.
//   update   The server updates the rows of each worker's gradients, and reads those of its next batch.
//   pull     The rows of the next batch come with the values. With stale rows (--embedding_staleness) they are on the
//            link at the same time as the rest of the step.
//
// Values are not sent before all gradients have arrived, and the next forward pass begins after the answer.
//
// `rate` is the goodput of the link, or the largest rate of one task if that is lower. Pure functions; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/cluster/placement.h"

namespace cairn::cli {

// The fraction of an Ethernet link's rate that carries TCP payload: 1448 of 1538 bytes of a packet.
constexpr double kGoodput = 1448.0 / 1538;

// The rows of an embedding table that a step uses.
struct PlannedTable {
  int dim = 0;           // values of a row
  double row_bytes = 0;  // of values and optimizer slots in the memory of a server
  double ids = 0;        // that the batch of a worker looks up
  double distinct = 0;   // different ones among them
};

struct PlanInput {
  std::vector<net::VariableInfo> variables;  // without those of tables
  std::vector<PlannedTable> tables{};
  int workers = 1;
  double link = 0;                // bits per second in each direction
  double step_compute = 0;        // seconds: forward and backward of one batch on one worker
  double round_trip = 0.0002;     // seconds
  double task_rate = 8e9;         // bits per second
  double memory_bandwidth = 8e9;  // bytes per second of a server's update
  int optimizer_slots = 0;        // floats per parameter in addition to its value
  bool norms = false;             // the optimizer needs norms: no update before all gradients have arrived
  // Bytes of one element of a gradient and of a value on the network.
  double gradient_bytes = sizeof(float), value_bytes = sizeof(float);
  double row_bytes = sizeof(float);  // of a row, and of its gradient
  bool stale_rows = false;           // rows are read while earlier batches are trained
};

struct StepPlan {
  int servers = 0;
  // Seconds. push: the part that does not overlap with backward. update and pull: the parts that do not
  // overlap with the transfer of gradients.
  double compute = 0, push = 0, update = 0, pull = 0, latency = 0;
  double ahead = 0;   // the part of compute that overlaps with pull
  double step = 0;    // compute + push + update + pull + latency - ahead
  double tables = 0;  // the part of the step that embedding tables cause
  // Bytes of gradients per step, and bytes of values per step in the other direction.
  int64_t worker_bytes = 0, worker_pull_bytes = 0;  // on one worker's link
  int64_t server_bytes = 0, server_pull_bytes = 0;  // on the busiest server's link
  // The rows among these.
  int64_t worker_row_bytes = 0, worker_row_pull_bytes = 0;
  // Rows that a server reads for workers, and as many gradients of rows that it applies, per second.
  double server_rows_per_second = 0;
  double imbalance = 1;  // bytes of the busiest server / mean of all servers
  const char* bottleneck = "";

  // Throughput of `workers` workers relative to one worker without communication.
  double speedup(int workers) const { return step == 0 ? workers : workers * compute / step; }
};

// `servers` must be at least 1.
StepPlan PlanStep(const PlanInput& input, int servers);

// The plan with the fewest servers, up to `most`, whose step is within 2 % of the shortest one.
StepPlan BestPlan(const PlanInput& input, int most);

// "10Gbit", "100 Mbit", "2.5Gbit/s" -> bits per second. INVALID_ARGUMENT for anything else and for 0.
absl::StatusOr<double> ParseLinkRate(absl::string_view text);
// Parses a duration into seconds: "30ms", "1.5s", "200us", or a plain number of seconds. Fails as
// ParseLinkRate() does.
absl::StatusOr<double> ParseSeconds(absl::string_view text);

// The text that `cairn plan` prints.
std::string AsText(const PlanInput& input, const StepPlan& plan, const StepPlan& best);
// How many open files (ulimit -n) each server and each worker needs.
std::string DescriptorsAsText(const PlanInput& input, int servers);
// Step time in milliseconds and speed-up for each number of workers (rows) and servers (columns).
std::string AsTable(PlanInput input, absl::Span<const int> workers, absl::Span<const int> servers);

}  // namespace cairn::cli
