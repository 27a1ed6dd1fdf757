#include "ps/job/job_description.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/core/clock.h"
#include "ps/log/work_proto.h"

namespace cairn::ps {
namespace {

constexpr size_t kReportedSlices = 32;

// The counts since the job began, including the counts from before it was resumed.
v1::Counters CountersOf(ActiveJob& job, const UpdateCounters& updates) {
  v1::Counters proto;
  proto.set_accepted(updates.accepted);
  proto.set_stale(updates.stale);
  proto.set_staleness_max(updates.staleness_max);
  proto.set_examples(updates.examples);
  proto.mutable_staleness_histogram()->Add(updates.staleness_histogram.begin(),
                                           updates.staleness_histogram.end());
  const v1::Counters& before = job.job().resumed().counters();
  proto.set_duplicate(before.duplicate() + job.shard().duplicates());
  proto.set_rejected(before.rejected() + job.shard().rejected());
  return proto;
}

v1::Counters CurrentCounters(ActiveJob& job) {
  return CountersOf(job, job.sequencer() == nullptr ? UpdateCounters() : job.sequencer()->counters());
}

}  // namespace

v1::Progress ProgressOf(ActiveJob& job, const Progress& progress) {
  v1::Progress proto;
  proto.set_version(progress.version);
  *proto.mutable_counters() = CountersOf(job, progress.counters);
  if (progress.data.has_value()) {
    *proto.mutable_data() = ToProto(*progress.data, job.job(), job.index());
    return proto;
  }
  for (int worker = 0; worker < job.job().workers_size(); ++worker) {
    const auto found = progress.positions.find(worker);
    proto.add_positions(found == progress.positions.end() ? 0 : found->second);
  }
  return proto;
}

void Describe(ActiveJob& job, v1::ConnectResponse& response) {
  *response.mutable_job() = job.job();
  response.set_layout(job.layout());
  optim::VariableStore& store = job.shard().store();
  for (const net::Slice& slice : store.slices()) *response.add_slices() = slice.ToProto();
  for (const std::string& slot : job.shard().slot_names()) response.add_slots(slot);
  response.set_version(store.current().version);
  response.set_learning_rate(store.learning_rate());
  response.set_sequences(job.sequencer() != nullptr);
  *response.mutable_counters() = CurrentCounters(job);
  if (job.job().dynamic_sharding() && job.sequencer() != nullptr) {
    *response.mutable_data() = ToProto(*job.sequencer()->DataPosition(), job.job(), job.index());
  }
}

void Describe(ActiveJob& job, v1::ServerStatus& status) {
  *status.mutable_job() = job.job();
  status.mutable_job()->clear_resumed();
  Shard& shard = job.shard();
  optim::VariableStore& store = shard.store();
  status.set_version(store.current().version);
  status.set_learning_rate(store.learning_rate());
  status.set_sequences(job.sequencer() != nullptr);
  *status.mutable_counters() = CurrentCounters(job);
  std::set<std::string> names;
  for (const net::Slice& slice : store.slices()) names.insert(slice.name);
  status.set_variables(static_cast<int64_t>(names.size()));
  std::vector<const net::Slice*> largest;
  for (const net::Slice& slice : store.slices()) largest.push_back(&slice);
  const size_t reported = std::min(largest.size(), kReportedSlices);
  std::partial_sort(largest.begin(), largest.begin() + static_cast<std::ptrdiff_t>(reported), largest.end(),
                    [](const net::Slice* a, const net::Slice* b) { return a->elements() > b->elements(); });
  for (size_t i = 0; i < reported; ++i) *status.add_largest_slices() = largest[i]->ToProto();
  status.set_variable_bytes(store.size() * static_cast<int64_t>(sizeof(float)));
  status.set_memory_bytes(store.memory_used());
  for (size_t table = 1; table < shard.tables().size(); ++table) {
    shard.tables()[table].FillStatus(*status.add_tables());
  }
  const Shard::Load load = shard.load();
  status.mutable_queues()->set_staged_pushes(load.staged);
  status.mutable_queues()->set_log_entries(load.queued);
  if (load.staged_since.has_value()) {
    status.set_waiting_seconds(ToSeconds(std::chrono::steady_clock::now() - *load.staged_since));
  }
}

std::vector<std::string> WaitingFor(ActiveJob& job) {
  std::vector<std::string> missing;
  if (job.sequencer() == nullptr) return missing;
  for (const int worker : job.sequencer()->WaitingFor()) missing.push_back(job.members().NameOf(worker));
  for (const int server : job.sequencer()->MissingServers()) missing.push_back(absl::StrCat("ps/", server));
  return missing;
}

}  // namespace cairn::ps
