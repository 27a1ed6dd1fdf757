// Server::Status(): the status that a server reports.

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "common/core/clock.h"
#include "common/flags/flags.h"
#include "common/net/grpc/grpc_util.h"
#include "common/system/process_usage.h"
#include "ps/job/progress_proto.h"
#include "ps/job/server.h"

namespace cairn::ps {
namespace {

constexpr size_t kReportedSlices = 32;

v1::MemberState StateOf(const Membership::Member* member) {
  if (member == nullptr) return v1::MEMBER_STATE_EXPECTED;
  switch (member->state) {
    case Membership::State::kLive:
      return v1::MEMBER_STATE_LIVE;
    case Membership::State::kLeft:
      return v1::MEMBER_STATE_LEFT;
    case Membership::State::kExpired:
      return v1::MEMBER_STATE_LOST;
  }
  return v1::MEMBER_STATE_UNSPECIFIED;
}

void DescribeJob(ActiveJob& job, v1::ServerStatus& status) {
  *status.mutable_job() = job.job();
  status.mutable_job()->clear_resumed();
  Shard& shard = job.shard();
  optim::VariableStore& store = shard.store();
  status.set_version(store.current().version);
  status.set_learning_rate(store.learning_rate());
  status.set_sequences(job.sequencer() != nullptr);
  *status.mutable_counters() =
      CountersOf(job, job.sequencer() == nullptr ? UpdateCounters() : job.sequencer()->counters());
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
  const Shard::Load load = shard.load();
  status.mutable_queues()->set_staged_pushes(load.staged);
  status.mutable_queues()->set_log_entries(load.queued);
  if (load.staged_since.has_value()) {
    status.set_waiting_seconds(ToSeconds(std::chrono::steady_clock::now() - *load.staged_since));
  }
}

}  // namespace

v1::ServerStatus Server::Status() const {
  v1::ServerStatus status;
  status.set_task(name());
  status.set_program_version(std::string(Version()));
  status.set_protocol(net::kProtocolVersion);
  status.set_cluster_hash(options_.cluster_hash);
  status.set_incarnation(options_.incarnation);
  status.set_unix_seconds(UnixSeconds());
  status.set_memory_limit_bytes(options_.memory_limit);
  status.set_resident_bytes(UsageOfThisProcess().resident_bytes);
  status.set_received_bytes(metrics_.received_bytes.value());
  status.set_sent_bytes(metrics_.sent_bytes.value());
  status.set_malformed_chunks(metrics_.malformed_chunks.value());
  const auto lateness = metrics_.lateness();
  const TimePoint now = clock_.Now();
  status.set_uptime_seconds(ToSeconds(now - started_));

  std::shared_ptr<ActiveJob> job;
  {
    MutexLock lock(mutex_);
    job = job_;
    status.set_state(state_);
    status.set_failure(std::string(failure_.message()));
    status.mutable_queues()->set_waiting_calls(static_cast<int64_t>(waiters_.size()));
    for (int worker = 0; worker < members_.num_expected(); ++worker) {
      const Membership::Member* known = members_.Find(worker);
      v1::Member& member = *status.add_members();
      member.set_task(members_.NameOf(worker));
      member.set_state(StateOf(known));
      if (known != nullptr) {
        member.set_incarnation(known->incarnation);
        member.set_step(known->step);
        member.set_heard_seconds(std::max(0.0, ToSeconds(now - known->last_heard)));
      }
      if (const auto report = reports_.find(worker); report != reports_.end()) {
        *member.mutable_report() = report->second;
      }
      if (const auto late = lateness.find(worker); late != lateness.end()) {
        member.set_times_last(late->second.times_last);
        member.set_late_seconds(late->second.seconds);
      }
    }
    if (job != nullptr && job->sequencer() != nullptr && state_ == v1::STATE_READY) {
      for (const int worker : job->sequencer()->WaitingFor()) status.add_waiting_for(members_.NameOf(worker));
      for (const int server : job->sequencer()->MissingServers()) {
        status.add_waiting_for(absl::StrCat("ps/", server));
      }
    }
  }
  if (job != nullptr) DescribeJob(*job, status);
  return status;
}

}  // namespace cairn::ps
