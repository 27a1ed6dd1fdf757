#include "ps/policy/policy.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "ps/policy/async_policy.h"
#include "ps/policy/queued_policy.h"
#include "ps/policy/ssp_policy.h"
#include "ps/policy/sync_policy.h"
#include "ps/policy/tallied_policy.h"

namespace cairn::ps {
namespace {

struct Row {
  absl::string_view mode;
  std::unique_ptr<UpdatePolicy> (*make)(const PolicyConfig&);
};
constexpr Row kPolicies[] = {
    {"sync",
     [](const PolicyConfig& c) -> std::unique_ptr<UpdatePolicy> { return std::make_unique<SyncPolicy>(c); }},
    {"async",
     [](const PolicyConfig& c) -> std::unique_ptr<UpdatePolicy> { return std::make_unique<AsyncPolicy>(c); }},
    {"ssp",
     [](const PolicyConfig& c) -> std::unique_ptr<UpdatePolicy> { return std::make_unique<SspPolicy>(c); }},
};

absl::Status AtLeast(absl::string_view field, int64_t value, int64_t lowest) {
  if (value >= lowest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", must be at least ", lowest));
}

// Limit on the open work items of a resumed job: two items per worker, and items that other workers had
// returned.
constexpr int64_t kMaxOpenWorkItems = int64_t{1} << 20;

absl::Status CheckData(const DynamicAssignment& data) {
  CAIRN_RETURN_IF_ERROR(AtLeast("num_examples", data.queue.num_examples, 1));
  CAIRN_RETURN_IF_ERROR(AtLeast("batch_size", data.queue.batch_size, 1));
  CAIRN_RETURN_IF_ERROR(AtLeast("epochs", data.queue.epochs, 0));
  CAIRN_RETURN_IF_ERROR(AtLeast("min_workers", data.min_workers, 1));
  int64_t done = 0, work_items = 0;
  for (const WorkPosition::Run& run : data.resumed.open) {
    if (run.begin < done || run.count < 1 || run.count > data.resumed.next - run.begin) {
      return absl::InvalidArgumentError(absl::StrCat("resumed at example ", data.resumed.next,
                                                     ", with an invalid range of ", run.count,
                                                     " unfinished examples from example ", run.begin, " on"));
    }
    done = run.begin + run.count;
    work_items += 2 + run.count / data.queue.batch_size;
    if (work_items > kMaxOpenWorkItems) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot resume with more than ", kMaxOpenWorkItems, " open batches"));
    }
  }
  return AtLeast("resumed at example", data.resumed.next, 0);
}

absl::Status CheckFields(const PolicyConfig& config) {
  CAIRN_RETURN_IF_ERROR(AtLeast("expected_workers", config.expected_workers, 1));
  CAIRN_RETURN_IF_ERROR(AtLeast("replicas_to_aggregate", config.replicas_to_aggregate, 0));
  if (config.mode == "ssp" && !config.max_staleness.has_value()) {
    return absl::InvalidArgumentError("max_staleness is missing: how far ahead a worker may go");
  }
  CAIRN_RETURN_IF_ERROR(AtLeast("max_staleness", config.max_staleness.value_or(0), 0));
  CAIRN_RETURN_IF_ERROR(AtLeast("initial_version", config.initial_version, 0));
  if (config.data.has_value()) CAIRN_RETURN_IF_ERROR(CheckData(*config.data));
  return AtLeast("final_version", config.final_version.value_or(0), 0);
}

}  // namespace

std::string Describe(const PushKey& key) {
  return absl::StrCat("push of worker ", key.worker, " (incarnation ", key.incarnation, "), step ", key.step);
}

void UpdateCounters::Add(const Decision& decision) {
  if (const Refuse* refuse = std::get_if<Refuse>(&decision)) {
    ++(refuse->reason == Refuse::Reason::kStale ? stale : refused_other);
    return;
  }
  const Apply* apply = std::get_if<Apply>(&decision);
  if (apply == nullptr) return;  // the gradient of a Release was counted with its Apply
  for (const Gradient& gradient : apply->contributors) {
    const int64_t staleness = apply->version - 1 - gradient.base_version;
    ++accepted;
    examples += gradient.examples;
    staleness_max = std::max(staleness_max, staleness);
    const int64_t last = static_cast<int64_t>(staleness_histogram.size()) - 1;
    ++staleness_histogram[static_cast<size_t>(std::min(staleness, last))];
  }
}

void UpdateCounters::Add(const UpdateCounters& other) {
  accepted += other.accepted;
  examples += other.examples;
  stale += other.stale;
  refused_other += other.refused_other;
  duplicate += other.duplicate;
  staleness_max = std::max(staleness_max, other.staleness_max);
  for (size_t i = 0; i < staleness_histogram.size(); ++i) {
    staleness_histogram[i] += other.staleness_histogram[i];
  }
}

absl::StatusOr<std::unique_ptr<UpdatePolicy>> MakePolicy(const PolicyConfig& config) {
  for (const Row& row : kPolicies) {
    if (row.mode != config.mode) continue;
    CAIRN_RETURN_IF_ERROR(CheckFields(config));
    if (!config.data.has_value()) return row.make(config);
    const DynamicAssignment& data = *config.data;
    if (data.elsewhere) return std::make_unique<TalliedPolicy>(row.make(config), data.resumed);
    PolicyConfig inner = config;
    if (data.elastic) inner.expected_workers = 1;
    return std::make_unique<QueuedPolicy>(
        row.make(inner), WorkQueue(data.queue, data.resumed),
        QueuedPolicy::Config{.rounds = config.mode == "sync",
                             .expected_workers = data.elastic ? 0 : config.expected_workers,
                             .min_workers = data.min_workers,
                             .final_version = config.final_version,
                             .most_workers = config.most_workers});
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown update mode '", config.mode,
                   "'; supported: ", absl::StrJoin(kPolicies, ", ", [](std::string* out, const Row& row) {
                     absl::StrAppend(out, row.mode);
                   })));
}

}  // namespace cairn::ps
