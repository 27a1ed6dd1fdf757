// Executes the log of a job on a shard: means, updates, answers to pushes.
#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/policy/policy_proto.h"
#include "ps/shard/shard.h"

namespace cairn::ps {
namespace {

// Executed entries are reported when the queue is empty, and at the latest after this many entries. Without
// this limit, pushes that keep arriving could delay the report, and the sequencer's log keeps all unreported
// entries.
constexpr int kReportEvery = 256;

}  // namespace

void Shard::Append(const LogEntry& entry) {
  MutexLock lock(mutex_);
  CAIRN_CHECK(entry.index == next_index_);
  ++next_index_;
  if (absl::Status admitted = entries_.Admit(entry); admitted.ok()) {
    queue_.push_back(PendingEntry{entry});
  } else {
    queue_.push_back(
        [this, why = absl::StrCat("ps/", leader_, " made an invalid decision: ", admitted.message())](
            Replies&) { Fail(absl::InternalError(why)); });
  }
}

void Shard::ExecuteQueue() {
  {
    MutexLock lock(mutex_);
    if (executing_) return;  // the executing thread will execute what was queued
    executing_ = true;
  }
  int64_t executed = 0, reported = 0;
  for (;;) {
    std::optional<std::variant<PendingEntry, PendingTask>> next;
    {
      MutexLock lock(mutex_);
      next = Next();
      if (!next.has_value()) {
        executing_ = false;
        break;
      }
    }
    Replies replies;
    const bool traced = Wants(trace());  // read before the update, which may begin another step
    if (auto* task = std::get_if<PendingTask>(&*next)) {
      if (speculative_ != nullptr) speculative_->Drop();
      (*task)(replies);
    } else {
      PendingEntry& pending = std::get<PendingEntry>(*next);
      if (pending.mean.has_value()) mean_ = std::move(pending.mean);
      Execute(pending.entry, replies);
      executed = executed_ = pending.entry.index;
    }
    const TimePoint replying = std::chrono::steady_clock::now();
    for (Reply& reply : replies) WhenReplicated(std::move(reply));
    if (traced && !replies.empty()) {
      trace_->Record({.lane = TraceLane::kReply,
                      .name = "reply",
                      .begin = TraceNanos(replying),
                      .end = TraceNanos(std::chrono::steady_clock::now()),
                      .step = store_.current().version});
    }
    if (executed - reported >= kReportEvery) {
      ReportExecuted(executed);
      reported = executed;
    }
  }
  if (executed > reported) ReportExecuted(executed);
}

void Shard::Execute(const LogEntry& entry, Replies& replies) {
  if (const auto* measure = std::get_if<Measure>(&entry.action)) {
    ExecuteMeasure(entry, *measure);
  } else if (const auto* apply = std::get_if<Apply>(&entry.action)) {
    ExecuteApply(entry, *apply, replies);
  } else {
    SendEntry(entry, /*with_mean=*/false);
    if (const auto* refuse = std::get_if<Refuse>(&entry.action)) ExecuteRefuse(*refuse, replies);
    if (const auto* release = std::get_if<Release>(&entry.action)) ExecuteRelease(*release, replies);
    if (const auto* marker = std::get_if<Marker>(&entry.action)) ExecuteMarker(*marker, replies);
    if (const auto* config_change = std::get_if<ConfigChange>(&entry.action))
      ExecuteConfigChange(*config_change);
  }
}

absl::Status Shard::WithMean(const LogEntry& entry, absl::Span<const Gradient> contributors, int64_t version,
                             absl::FunctionRef<absl::Status(const optim::VariableStore::Mean&)> use) {
  std::vector<optim::ContributedGradient> gradients;
  std::vector<GradientView> views;
  int64_t staleness = 0;
  for (const Gradient& gradient : contributors) {
    staleness = std::max(staleness, version - 1 - gradient.base_version);
  }
  const bool known = mean_.has_value() && mean_->version == version;
  if (!known) {
    MutexLock lock(mutex_);
    for (const Gradient& gradient : contributors) {
      const auto found = staged_.find(gradient.key);
      if (found == staged_.end()) {
        return absl::InternalError(absl::StrCat("version ", version, " needs the ", Describe(gradient.key),
                                                ", which this server does not have"));
      }
      views.push_back(found->second.data);
      if (views.back().none() && gradient.examples != 0 && store_.size() > 0) {
        return absl::InternalError(absl::StrCat("version ", version, " uses the ", Describe(gradient.key),
                                                ", computed from ", gradient.examples,
                                                " examples, but this server received none of its elements"));
      }
      gradients.emplace_back(views.back().runs(), gradient.examples);
    }
  }
  Replicator* const replicator = replicator_;
  const bool replicated = replicator != nullptr && replicator->wants(Replicator::Component::kShard);
  if (replicated && !known) mean_ = MeanOf(version, gradients, views);
  if (replicated) SendEntry(entry, /*with_mean=*/!known);
  if (mean_.has_value() && mean_->version == version) {
    const bool none = mean_->data == nullptr;
    gradients = {optim::ContributedGradient(none ? nullptr : mean_->data->data(), none ? 0 : 1)};
  }
  // Zhang et al. 2016, "Staleness-aware Async-SGD for Distributed Deep Learning", equation 6.
  const float divisor =
      staleness_aware_learning_rate_ ? static_cast<float>(std::max<int64_t>(1, staleness)) : 1.0f;
  return use(
      {.gradients = gradients, .last = finished(version), .rate_divisor = divisor, .known = entry.known});
}

void Shard::ExecuteMeasure(const LogEntry& entry, const Measure& measure) {
  if (!failure().ok()) return;
  const TraceSpan span(trace(), TraceLane::kMeasure, "measure");
  Sums sums = {.index = entry.index, .slices = {}};
  absl::Status status = WithMean(entry, measure.contributors, measure.version,
                                 [&](const optim::VariableStore::Mean& mean) -> absl::Status {
                                   CAIRN_ASSIGN_OR_RETURN(sums.slices, store_.Measure(measure.norms, mean));
                                   return absl::OkStatus();
                                 });
  if (!status.ok()) {
    Fail(std::move(status));
    return;
  }
  measuring_ = true;
  {
    MutexLock lock(mutex_);
    unanswered_ = sums;
  }
  Pass("measured");
  if (SequencerPort* const port = port_; port != nullptr) port->ReportSums(std::move(sums));
}

void Shard::ExecuteApply(const LogEntry& entry, const Apply& apply, Replies& replies) {
  if (!failure().ok()) return;
  if (apply.last) final_version_ = apply.version;
  const bool traced = Wants(trace());
  TraceSpan span(trace(), TraceLane::kApply, "apply",
                 {.step = apply.version, .bytes = store_.size() * int64_t{sizeof(float)}});
  const TimePoint began = std::chrono::steady_clock::now();
  const bool speculative = TakeSpeculative(apply);
  absl::Status status = WithMean(entry, apply.contributors, apply.version,
                                 [this, speculative](const optim::VariableStore::Mean& mean) {
                                   return speculative ? absl::OkStatus() : store_.ApplyMean(mean);
                                 });
  if (!status.ok()) {
    Fail(std::move(status));
    return;
  }
  span.End();
  Pass("applied");
  mean_.reset();
  measuring_ = false;
  if (std::exchange(capture_wanted_, false)) {
    MutexLock lock(mutex_);
    queue_.push_front([this](Replies&) { SendState(); });
  }
  const optim::Values values = store_.current();
  MutexLock lock(mutex_);
  unanswered_.reset();
  Count(apply, began);
  if (traced) TraceContributors(apply, began);
  if (trace() != nullptr) trace_->AtStep(apply.version + 1);
  for (const Gradient& gradient : apply.contributors) {
    const int64_t staleness = apply.version - 1 - gradient.base_version;
    if (apply.deferred) {
      Staged& staged = staged_[gradient.key];  // in a backup, this creates the entry
      staged.gradient = gradient;
      staged.applied_staleness = staleness;
      staged.data = GradientView();
      if (ledger_.Admit(gradient.key).admission == Ledger::Admission::kNew) ledger_.Stage(gradient.key);
    } else {
      Settle(gradient.key, v1::OUTCOME_ACCEPTED, staleness, values, speculative, replies);
    }
  }
  const bool serves = port_.load() != nullptr;  // no worker pushes to a backup
  if (speculative_ != nullptr && serves && !finished(apply.version)) {
    speculative_->Expect(apply.contributors, finished(apply.version + 1));
  }
}

bool Shard::TakeSpeculative(const Apply& apply) {
  if (speculative_ == nullptr) return false;
  std::vector<GradientView> data;
  if (!apply.deferred) {
    MutexLock lock(mutex_);
    for (const Gradient& gradient : apply.contributors) {
      const auto found = staged_.find(gradient.key);
      if (found != staged_.end() && !found->second.data.none()) data.push_back(found->second.data);
    }
  }
  if (data.size() == apply.contributors.size())
    return speculative_->Take(apply.contributors, data, finished(apply.version));
  speculative_->Drop();
  return false;
}

void Shard::Count(const Apply& apply, TimePoint began) const {
  if (metrics_ == nullptr) return;
  std::vector<std::pair<int, TimePoint>> came;
  for (const Gradient& gradient : apply.contributors) {
    if (const auto found = staged_.find(gradient.key); found != staged_.end()) {
      came.emplace_back(gradient.key.worker, found->second.came);
    }
  }
  metrics_->OnUpdate(came, began, std::chrono::steady_clock::now());
}

void Shard::TraceContributors(const Apply& apply, TimePoint began) const {
  TimePoint first = began;
  for (const Gradient& gradient : apply.contributors) {
    const PushKey& key = gradient.key;
    trace_->Record(
        {.kind = TraceEvent::Kind::kFlowIn,
         .lane = TraceLane::kApply,
         .begin = TraceNanos(began),
         .flow = {
             .worker = key.worker, .server = server_, .incarnation = key.incarnation, .number = key.step}});
    if (const auto found = staged_.find(key); found != staged_.end())
      first = std::min(first, found->second.came);
  }
  trace_->Record({.lane = TraceLane::kCollect,
                  .name = "collect",
                  .begin = TraceNanos(first),
                  .end = TraceNanos(began),
                  .step = apply.version});
}

void Shard::ExecuteRelease(const Release& release, Replies& replies) {
  const optim::Values values = store_.current();
  MutexLock lock(mutex_);
  const auto found = staged_.find(release.key);
  if (found == staged_.end() || !found->second.applied_staleness.has_value()) return;  // the job has failed
  Settle(release.key, v1::OUTCOME_ACCEPTED, *found->second.applied_staleness, values, /*speculative=*/false,
         replies);
}

void Shard::ExecuteRefuse(const Refuse& refuse, Replies& replies) {
  const optim::Values values = store_.current();
  MutexLock lock(mutex_);
  Settle(refuse.key, OutcomeOf(refuse.reason), refuse.staleness, values, /*speculative=*/false, replies);
}

absl::StatusOr<ReadResult> Shard::ReadAtMarker(bool snapshot) {
  CAIRN_RETURN_IF_ERROR(store_.CheckRoomForReader());
  ReadResult result;
  result.values = store_.current();
  result.finished = finished(result.values.version);
  if (snapshot) {
    Pass("snapshot");
    const TraceSpan span(trace(), TraceLane::kSnapshot, "copy slots");
    CAIRN_ASSIGN_OR_RETURN(result.slots, store_.CopySlots());
    result.learning_rate = store_.changed_learning_rate();
  }
  return result;
}

void Shard::MakeRoom() {
  markers_.DropUntil([this] { return store_.CheckRoomForReader(); });
}

void Shard::ExecuteMarker(const Marker& marker, Replies& replies) {
  if (port_ == nullptr) {  // a backup: its readers must place a new marker
    MutexLock lock(mutex_);
    markers_.KeepNothing(marker.token);
    return;
  }
  {
    MutexLock lock(mutex_);
    if (marker.snapshot) markers_.DropSnapshots();
    MakeRoom();
  }
  const absl::StatusOr<ReadResult> result = ReadAtMarker(marker.snapshot);
  MutexLock lock(mutex_);
  std::vector<ReadReply> readers = markers_.TakeReaders(marker.token);
  if (readers.empty()) markers_.Keep(marker.token, marker.snapshot, result);
  for (ReadReply& reply : readers) {
    replies.push_back([reply = std::move(reply), result](const absl::Status& lost) mutable {
      reply(lost.ok() ? std::move(result) : lost);
    });
  }
}

void Shard::ExecuteConfigChange(const ConfigChange& config_change) {
  if (speculative_ != nullptr) speculative_->Drop();
  if (config_change.learning_rate.has_value()) store_.SetLearningRate(*config_change.learning_rate);
  const int64_t version = store_.current().version;
  if (!config_change.end || finished(version)) return;
  store_.EndHere();
  final_version_ = version;
}

void Shard::Settle(const PushKey& key, v1::Outcome outcome, int64_t staleness, const optim::Values& values,
                   bool speculative, Replies& replies) {
  ledger_.Decide(key, outcome, values.version, staleness);
  const auto found = staged_.find(key);
  if (found == staged_.end()) return;
  if (outcome == v1::OUTCOME_REJECTED || outcome == v1::OUTCOME_FINISHED) ++rejected_;
  MakeRoom();
  const bool room = store_.CheckRoomForReader().ok();  // otherwise the worker reads the values later
  for (Staged::Waiting& waiting : found->second.waiting) {
    PushResult result = {.outcome = outcome,
                         .duplicate = waiting.duplicate,
                         .staleness = staleness,
                         .version = values.version,
                         .finished = finished(values.version),
                         .values = {}};
    result.sent_early = waiting.speculative && speculative;
    if (waiting.read_values && !result.sent_early && room) result.values = values;
    replies.push_back(
        [reply = std::move(waiting.reply), result = std::move(result)](const absl::Status& lost) mutable {
          reply(lost.ok() ? absl::StatusOr<PushResult>(std::move(result)) : lost);
        });
  }
  staged_.erase(found);
}

}  // namespace cairn::ps
