#include "cli/planner/planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/monitor/status_page.h"
#include "common/net/cluster/task_needs.h"
#include "common/net/wire/update_chunk.h"

namespace cairn::cli {
namespace {

// Whether the optimizer or a constraint needs norms.
bool NeedsNorms(const PlanInput& input) {
  return input.norms ||
         std::any_of(input.variables.begin(), input.variables.end(), [](const net::VariableInfo& variable) {
           return variable.constraint.has_value() && variable.constraint->takes_norms();
         });
}

// Gradients are sent in chunks of at least this many bytes: when backward ends, one chunk is left to send.
constexpr double kLastChunk = 256 << 10;
constexpr double kForward = 1.0 / 3;
constexpr double kNearlyBest = 1.02;

// Seconds of one processor for a row besides the transfer of its bytes to and from memory (design/embedding-tables.md).
constexpr double kReadRow = 30e-9;
constexpr double kUpdateRow = 100e-9;
constexpr double kMergeId = 30e-9;  // for each id of a batch, at the worker
constexpr double kKeyBytes = 8;

using Unit = std::pair<absl::string_view, double>;

// Parses a number above 0 that is followed by one of `units`.
absl::StatusOr<double> ParseWithUnit(absl::string_view text, absl::Span<const Unit> units,
                                     absl::string_view example) {
  const absl::string_view given = text;
  text = absl::StripAsciiWhitespace(text);
  for (const auto& [unit, factor] : units) {
    absl::string_view digits = text;
    double number = 0;
    if (absl::ConsumeSuffix(&digits, unit) && absl::SimpleAtod(absl::StripAsciiWhitespace(digits), &number) &&
        std::isfinite(number) && number > 0) {
      return number * factor;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("'", given, "' is not of the form ", example));
}

std::string Milliseconds(double seconds) {
  return absl::StrFormat("%.1f ms", seconds * 1e3);
}

std::string Rate(double bits) {
  return bits >= 1e9 ? absl::StrFormat("%g Gbit/s", bits / 1e9) : absl::StrFormat("%g Mbit/s", bits / 1e6);
}

double Rate(const PlanInput& input) {  // bytes per second
  return std::min(input.link * kGoodput, input.task_rate) / 8;
}

// The costs of a step's rows.
struct RowCosts {
  double up = 0, down = 0;               // bytes of one worker
  double rows = 0;                       // distinct rows of one worker's batch
  double at_worker = 0, at_servers = 0;  // seconds; of all servers together, for one worker
};

RowCosts CostsOfRows(const PlanInput& input) {
  RowCosts costs;
  for (const PlannedTable& table : input.tables) {
    costs.rows += table.distinct;
    costs.up += table.distinct * (kKeyBytes + table.dim * input.row_bytes);
    costs.down += table.distinct * table.dim * input.row_bytes;
    // Rows are gathered and their gradients added up.
    costs.at_worker += table.ids * (kMergeId + 4.0 * table.dim * sizeof(float) / input.memory_bandwidth);
    costs.at_servers +=
        table.distinct * (kReadRow + kUpdateRow + 3 * table.row_bytes / input.memory_bandwidth);
  }
  return costs;
}

// Adds what tables add to a plan for the variables alone.
void AddTables(const PlanInput& input, int64_t all, int64_t largest, StepPlan& plan) {
  if (input.tables.empty()) return;
  const RowCosts costs = CostsOfRows(input);
  const double rate = Rate(input), shares = std::max(1.0, input.workers / static_cast<double>(plan.servers));
  const auto busiest = [&](double dense_bytes, double of_rows) {
    return std::max(static_cast<double>(all) * dense_bytes + of_rows,
                    input.workers * (static_cast<double>(largest) * dense_bytes + of_rows / plan.servers)) /
           rate;
  };
  const double update = input.workers * costs.at_servers / plan.servers;
  const double push = costs.up * shares / rate;
  const double pull = busiest(input.value_bytes, costs.down);
  const double of_rows = pull - plan.pull;
  plan.worker_row_bytes = static_cast<int64_t>(costs.up);
  plan.worker_row_pull_bytes = static_cast<int64_t>(costs.down);
  plan.worker_bytes += plan.worker_row_bytes;
  plan.worker_pull_bytes += plan.worker_row_pull_bytes;
  plan.server_bytes += static_cast<int64_t>(input.workers * costs.up / plan.servers);
  plan.server_pull_bytes += static_cast<int64_t>(input.workers * costs.down / plan.servers);
  plan.compute += costs.at_worker;
  plan.push += push;
  plan.update += update;
  plan.tables = costs.at_worker + push + update;
  if (!input.stale_rows) {
    plan.pull = pull;
    plan.tables += of_rows;
  } else if (const double rest = plan.compute + plan.push + plan.update + plan.pull + plan.latency;
             pull > rest) {
    plan.pull += pull - rest;
    plan.tables += pull - rest;
  }
  plan.step = plan.compute + plan.push + plan.update + plan.pull + plan.latency;
  plan.server_rows_per_second = input.workers * costs.rows / plan.servers / plan.step;
}

}  // namespace

StepPlan PlanStep(const PlanInput& input, int servers) {
  StepPlan plan = {.servers = servers};
  int64_t all = 0, largest = 0;  // elements
  for (const auto& slices : net::PlaceVariables(input.variables, {.servers = servers})) {
    int64_t elements = 0;
    for (const net::Slice& slice : slices) elements += slice.elements();
    all += elements;
    largest = std::max(largest, elements);
  }
  const auto bytes = [](int64_t elements, double each) {
    return static_cast<int64_t>(static_cast<double>(elements) * each);
  };
  plan.worker_bytes = bytes(all, input.gradient_bytes);
  plan.worker_pull_bytes = bytes(all, input.value_bytes);
  plan.server_bytes = bytes(largest, input.gradient_bytes) * input.workers;
  plan.server_pull_bytes = bytes(largest, input.value_bytes) * input.workers;
  if (all > 0) plan.imbalance = static_cast<double>(largest) * servers / static_cast<double>(all);
  const double rate = Rate(input);
  const double push = static_cast<double>(std::max(plan.worker_bytes, plan.server_bytes)) / rate;
  const double last_chunk = std::min(kLastChunk, static_cast<double>(plan.worker_bytes)) / rate;
  plan.compute = input.step_compute;
  plan.push = std::max(push - (1 - kForward) * input.step_compute, last_chunk);
  plan.update = static_cast<double>(bytes(largest, sizeof(float))) *
                (input.workers + 2 + 2 * input.optimizer_slots) / input.memory_bandwidth;
  plan.pull = static_cast<double>(std::max(plan.worker_pull_bytes, plan.server_pull_bytes)) / rate;
  if (all > 0) {
    int64_t largest_variable = 0;
    for (const net::VariableInfo& variable : input.variables) {
      largest_variable = std::max(largest_variable, variable.shape.num_elements());
    }
    const double others = 1 - static_cast<double>(largest_variable) / static_cast<double>(all);
    if (input.tables.empty()) plan.ahead = std::min(kForward * input.step_compute * others, plan.pull);
  }
  if (!NeedsNorms(input) && input.tables.empty() && largest >= net::kMinSpeculativeUpdate) {
    const double last = static_cast<double>(net::kUpdateChunk) / static_cast<double>(largest);
    const double first_answer = kForward * input.step_compute + last * push;
    const double all_up = plan.compute + plan.push;
    plan.update *= last;
    plan.pull = std::max(last * plan.pull, first_answer + plan.pull - all_up);
  }
  plan.latency = (servers == 1 ? 1 : 2) * input.round_trip;
  plan.step = plan.compute - plan.ahead + plan.push + plan.update + plan.pull + plan.latency;
  AddTables(input, all, largest, plan);

  const double communication = plan.push + plan.pull;
  if (plan.compute >= communication + plan.update + plan.latency) {
    plan.bottleneck = "the computation";
  } else if (plan.update + plan.latency > communication) {
    plan.bottleneck = plan.latency > plan.update ? "the latency" : "the servers' memory";
  } else if (input.task_rate < input.link * kGoodput) {
    plan.bottleneck =
        plan.server_bytes > plan.worker_bytes ? "the servers' processors" : "the workers' processors";
  } else {
    plan.bottleneck = plan.server_bytes > plan.worker_bytes ? "the servers' links" : "the workers' links";
  }
  return plan;
}

StepPlan BestPlan(const PlanInput& input, int most) {
  std::vector<StepPlan> plans;
  for (int servers = 1; servers <= most; ++servers) plans.push_back(PlanStep(input, servers));
  const double shortest =
      std::min_element(plans.begin(), plans.end(), [](const StepPlan& one, const StepPlan& other) {
        return one.step < other.step;
      })->step;
  return *std::find_if(plans.begin(), plans.end(),
                       [&](const StepPlan& plan) { return plan.step <= shortest * kNearlyBest; });
}

absl::StatusOr<double> ParseLinkRate(absl::string_view text) {
  constexpr Unit kUnits[] = {{"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}};
  absl::string_view rate = absl::StripAsciiWhitespace(text);
  absl::ConsumeSuffix(&rate, "/s");
  const auto bits = ParseWithUnit(rate, kUnits, "10Gbit or 100Mbit");
  if (!bits.ok())
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not of the form 10Gbit or 100Mbit"));
  return bits;
}

absl::StatusOr<double> ParseSeconds(absl::string_view text) {
  constexpr Unit kUnits[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"", 1}};
  return ParseWithUnit(text, kUnits, "30ms or 1.5s");
}

std::string AsText(const PlanInput& input, const StepPlan& plan, const StepPlan& best) {
  std::string text;
  const auto line = [&](absl::string_view what, absl::string_view value, absl::string_view remark = "") {
    absl::StrAppendFormat(&text, "%-12s%12s%s%s\n", what, value, remark.empty() ? "" : "  ", remark);
  };
  absl::StrAppendFormat(&text, "%d ps and %d %s, links of %s each way, synchronous\n\n", plan.servers,
                        input.workers, input.workers == 1 ? "worker" : "workers", Rate(input.link));
  line("computation", Milliseconds(plan.compute));
  line("push", Milliseconds(plan.push), "not overlapped with backward");
  line("update", Milliseconds(plan.update));
  line("pull", Milliseconds(plan.pull), "not overlapped with the transfer of gradients");
  line("latency", Milliseconds(plan.latency));
  line("ahead", Milliseconds(0 - plan.ahead), "of the next forward pass, overlapped with pull");
  line("step", Milliseconds(plan.step),
       absl::StrFormat("%.2f steps/s, as fast as %.2f workers without communication", 1 / plan.step,
                       plan.speedup(input.workers)));
  if (plan.tables > 0) {
    line("tables", Milliseconds(plan.tables),
         absl::StrFormat("of the step, %.0f %%: rows of embedding tables", 100 * plan.tables / plan.step));
  }
  const auto both_ways = [](int64_t gradients, int64_t values) {
    const std::string up = monitor::InBytes(static_cast<double>(gradients));
    return gradients == values ? up + " each way"
                               : absl::StrCat(up, " of gradients and ",
                                              monitor::InBytes(static_cast<double>(values)), " of values");
  };
  absl::StrAppendFormat(&text,
                        "\neach worker's link %s per step, the busiest server's %s (%.2f times the mean)\n",
                        both_ways(plan.worker_bytes, plan.worker_pull_bytes),
                        both_ways(plan.server_bytes, plan.server_pull_bytes), plan.imbalance);
  if (plan.tables > 0) {
    absl::StrAppendFormat(&text,
                          "of these, rows and ids: each worker's link %s of gradients and %s of values\n",
                          monitor::InBytes(static_cast<double>(plan.worker_row_bytes)),
                          monitor::InBytes(static_cast<double>(plan.worker_row_pull_bytes)));
    absl::StrAppendFormat(&text,
                          "each server reads %s rows/s for workers and applies as many gradients of rows\n",
                          monitor::WithCommas(std::round(plan.server_rows_per_second)));
  }
  absl::StrAppend(&text, "bottleneck: ", plan.bottleneck, "\n");
  absl::StrAppendFormat(&text, "best: %d ps, %s a step\n", best.servers, Milliseconds(best.step));
  return text;
}

std::string DescriptorsAsText(const PlanInput& input, int servers) {
  return absl::StrFormat("open files (ulimit -n): each server needs about %d, each worker %d\n",
                         net::ServerDescriptors(input.workers), net::WorkerDescriptors(servers));
}

std::string AsTable(PlanInput input, absl::Span<const int> workers, absl::Span<const int> servers) {
  std::string text = absl::StrFormat("%7s", "workers");
  for (const int count : servers) absl::StrAppendFormat(&text, "%18s", absl::StrCat(count, " ps"));
  text += '\n';
  for (const int count : workers) {
    input.workers = count;
    absl::StrAppendFormat(&text, "%7d", count);
    for (const int ps : servers) {
      const StepPlan plan = PlanStep(input, ps);
      absl::StrAppendFormat(&text, "%18s",
                            absl::StrFormat("%.1f ms %6.1fx", plan.step * 1e3, plan.speedup(count)));
    }
    text += '\n';
  }
  return text;
}

}  // namespace cairn::cli
