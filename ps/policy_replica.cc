#include "ps/policy_replica.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/follow_proto.h"
#include "ps/work_proto.h"

namespace cairn::ps {
namespace {

void Save(const UpdateCounters& counters, v1::PolicyCounters& proto) {
  proto.set_accepted(counters.accepted);
  proto.set_examples(counters.examples);
  proto.set_stale(counters.stale);
  proto.set_refused_other(counters.refused_other);
  proto.set_duplicate(counters.duplicate);
  proto.set_staleness_max(counters.staleness_max);
  proto.mutable_staleness_histogram()->Add(counters.staleness_histogram.begin(),
                                           counters.staleness_histogram.end());
}

UpdateCounters Read(const v1::PolicyCounters& proto) {
  UpdateCounters counters = {.accepted = proto.accepted(),
                             .examples = proto.examples(),
                             .stale = proto.stale(),
                             .refused_other = proto.refused_other(),
                             .duplicate = proto.duplicate(),
                             .staleness_max = proto.staleness_max()};
  auto& histogram = counters.staleness_histogram;
  for (int i = 0; i < proto.staleness_histogram_size() && i < static_cast<int>(histogram.size()); ++i) {
    histogram[static_cast<size_t>(i)] = proto.staleness_histogram(i);
  }
  return counters;
}

void Save(const WorkItem& work_item, v1::WorkItem& proto) {
  proto.set_epoch(work_item.epoch);
  proto.set_first(work_item.first);
  proto.set_count(work_item.count);
}

WorkItem Read(const v1::WorkItem& proto) {
  return {.epoch = proto.epoch(), .first = proto.first(), .count = proto.count()};
}

void Save(const PolicyState::Queue& queue, v1::ReplicatedQueue& proto) {
  proto.set_next(queue.work.next);
  for (const WorkItem& work_item : queue.work.returned) Save(work_item, *proto.add_returned());
  for (const auto& [worker, holder] : queue.work.holders) {
    v1::ReplicatedQueue::Holder& saved = *proto.add_holders();
    saved.set_worker(worker);
    if (holder.current.has_value()) Save(*holder.current, *saved.mutable_current());
    if (holder.next.has_value()) Save(*holder.next, *saved.mutable_next());
  }
  for (const auto& [worker, member] : queue.members) {
    v1::ReplicatedQueue::Member& saved = *proto.add_members();
    saved.set_worker(worker);
    saved.set_incarnation(member.incarnation);
    saved.set_last_step(member.last_step);
    saved.set_idle(member.idle);
  }
  proto.set_ended(queue.ended);
}

PolicyState::Queue Read(const v1::ReplicatedQueue& proto) {
  PolicyState::Queue queue = {.work = {.next = proto.next()}};
  for (const v1::WorkItem& work_item : proto.returned()) queue.work.returned.insert(Read(work_item));
  for (const v1::ReplicatedQueue::Holder& saved : proto.holders()) {
    WorkQueue::Holder& holder = queue.work.holders[saved.worker()];
    if (saved.has_current()) holder.current = Read(saved.current());
    if (saved.has_next()) holder.next = Read(saved.next());
  }
  for (const v1::ReplicatedQueue::Member& saved : proto.members()) {
    queue.members[saved.worker()] = {
        .incarnation = saved.incarnation(), .last_step = saved.last_step(), .idle = saved.idle()};
  }
  queue.ended = proto.ended();
  return queue;
}

void Save(const WorkPosition& position, v1::DataPosition& proto) {
  proto.set_next(position.next);
  for (const WorkPosition::Run& run : position.open) {
    v1::DataPosition::Run& saved = *proto.add_open();
    saved.set_begin(run.begin);
    saved.set_count(run.count);
  }
  proto.set_repeated(position.repeated);
}

// Upper bound on versions, clocks and examples: no count reaches it, and the sum of two such numbers does not
// overflow.
constexpr int64_t kMaxCounted = int64_t{1} << 60;

absl::Status CheckCount(absl::string_view what, int64_t count) {
  if (count >= 0 && count <= kMaxCounted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("replicated: ", what, " cannot be ", count));
}

absl::Status CheckWorker(int worker, int most_workers) {
  if (worker >= 0 && worker < most_workers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("replicated: worker ", worker, ", but the number of workers is ", most_workers));
}

// A work item without examples lies at the end of an epoch.
absl::Status CheckWorkItem(const v1::WorkItem& work_item, int64_t num_examples) {
  const bool fits = work_item.epoch() >= 0 && work_item.epoch() < kMaxCounted / num_examples &&
                    work_item.first() >= 0 && work_item.count() >= 0 && work_item.first() <= num_examples &&
                    work_item.count() <= num_examples - work_item.first();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "replicated: a work item of ", work_item.count(), " examples from example ", work_item.first(),
      " on does not fit in epoch ", work_item.epoch(), ", which has ", num_examples));
}

absl::Status CheckQueue(const v1::ReplicatedQueue& queue, int64_t num_examples, int most_workers) {
  CAIRN_RETURN_IF_ERROR(CheckCount("next example", queue.next()));
  for (const v1::WorkItem& work_item : queue.returned())
    CAIRN_RETURN_IF_ERROR(CheckWorkItem(work_item, num_examples));
  for (const v1::ReplicatedQueue::Holder& holder : queue.holders()) {
    CAIRN_RETURN_IF_ERROR(CheckWorker(holder.worker(), most_workers));
    CAIRN_RETURN_IF_ERROR(CheckWorkItem(holder.current(), num_examples));
    CAIRN_RETURN_IF_ERROR(CheckWorkItem(holder.next(), num_examples));
  }
  for (const v1::ReplicatedQueue::Member& member : queue.members()) {
    CAIRN_RETURN_IF_ERROR(CheckWorker(member.worker(), most_workers));
  }
  return absl::OkStatus();
}

absl::Status CheckTally(const v1::DataPosition& tally) {
  int64_t done = 0;
  CAIRN_RETURN_IF_ERROR(CheckCount("next example", tally.next()));
  CAIRN_RETURN_IF_ERROR(CheckCount("repeated examples", tally.repeated()));
  for (const v1::DataPosition::Run& run : tally.open()) {
    if (run.begin() < done || run.count() < 1 || run.count() > tally.next() - run.begin()) {
      return absl::InvalidArgumentError(absl::StrCat("replicated: ", run.count(),
                                                     " unfinished examples from ", run.begin(),
                                                     " on do not fit among the first ", tally.next()));
    }
    done = run.begin() + run.count();
  }
  return absl::OkStatus();
}

absl::Status CheckCounters(const v1::PolicyCounters& counters) {
  for (const int64_t count : {counters.accepted(), counters.examples(), counters.stale(),
                              counters.refused_other(), counters.duplicate(), counters.staleness_max()}) {
    CAIRN_RETURN_IF_ERROR(CheckCount("a counter", count));
  }
  for (const int64_t count : counters.staleness_histogram())
    CAIRN_RETURN_IF_ERROR(CheckCount("a counter", count));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckReplicated(const v1::ReplicatedPolicy& replicated, const v1::Job& job, int most_workers) {
  CAIRN_RETURN_IF_ERROR(CheckCount("version", replicated.version()));
  CAIRN_RETURN_IF_ERROR(CheckCount("the slowest clock", replicated.slowest()));
  for (const auto& [worker, clock] : replicated.clocks()) {
    CAIRN_RETURN_IF_ERROR(CheckWorker(worker, most_workers));
    CAIRN_RETURN_IF_ERROR(CheckCount("a clock", clock));
  }
  for (const v1::RosterEntry& entry : replicated.roster()) {
    CAIRN_RETURN_IF_ERROR(CheckWorker(entry.worker(), most_workers));
  }
  for (const v1::StagedGradient& staged : replicated.staged()) {
    CAIRN_RETURN_IF_ERROR(CheckWorker(staged.key().worker(), most_workers));
  }
  for (const v1::PushKey& key : replicated.deferred())
    CAIRN_RETURN_IF_ERROR(CheckWorker(key.worker(), most_workers));
  CAIRN_RETURN_IF_ERROR(CheckCounters(replicated.counters()));
  if (replicated.has_queue()) {
    const int64_t num_examples = std::max<int64_t>(1, job.num_examples());
    CAIRN_RETURN_IF_ERROR(CheckQueue(replicated.queue(), num_examples, most_workers));
  }
  return replicated.has_tally() ? CheckTally(replicated.tally()) : absl::OkStatus();
}

v1::ReplicatedPolicy ToProto(const PolicyState& state) {
  v1::ReplicatedPolicy proto;
  proto.set_version(state.version);
  if (state.final_version.has_value()) proto.set_final_version(*state.final_version);
  for (const auto& [worker, entry] : state.roster) {
    v1::RosterEntry& saved = *proto.add_roster();
    saved.set_worker(worker);
    saved.set_incarnation(entry.incarnation);
    saved.set_last_step(entry.last_step);
    saved.set_live(entry.live);
  }
  for (const Gradient& gradient : state.staged) *proto.add_staged() = ToProto(gradient);
  Save(state.counters, *proto.mutable_counters());
  proto.mutable_clocks()->insert(state.clocks.begin(), state.clocks.end());
  proto.set_slowest(state.slowest);
  for (const auto& [worker, key] : state.deferred) *proto.add_deferred() = ToProto(key);
  if (state.queue.has_value()) Save(*state.queue, *proto.mutable_queue());
  if (state.tally.has_value()) Save(*state.tally, *proto.mutable_tally());
  return proto;
}

absl::StatusOr<PolicyState> FromProto(const v1::ReplicatedPolicy& proto) {
  PolicyState state = {.version = proto.version()};
  if (proto.has_final_version()) state.final_version = proto.final_version();
  for (const v1::RosterEntry& saved : proto.roster()) {
    state.roster[saved.worker()] = {
        .incarnation = saved.incarnation(), .last_step = saved.last_step(), .live = saved.live()};
  }
  for (const v1::StagedGradient& saved : proto.staged()) {
    CAIRN_ASSIGN_OR_RETURN(const Gradient gradient, FromProto(saved));
    state.staged.push_back(gradient);
  }
  state.counters = Read(proto.counters());
  state.clocks.insert(proto.clocks().begin(), proto.clocks().end());
  state.slowest = proto.slowest();
  for (const v1::PushKey& key : proto.deferred()) state.deferred[key.worker()] = FromProto(key);
  if (proto.has_queue()) state.queue = Read(proto.queue());
  if (proto.has_tally()) {
    state.tally = FromProto(proto.tally());
    state.tally->repeated = proto.tally().repeated();
  }
  return state;
}

}  // namespace cairn::ps
