#include "ps/shard/log_executor.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/policy/policy_proto.h"

namespace cairn::ps {
namespace {

// Executed entries are reported when the queue is empty, and at the latest after this many entries. Without
// this limit, pushes that keep arriving could delay the report, and the sequencer's log keeps all unreported
// entries.
constexpr int kReportEvery = 256;

}  // namespace

LogExecutor::LogExecutor(const Options& options, const Parts& parts)
    : options_(options),
      parts_(parts),
      entries_(options.norms, options.initial_version, options.most_workers) {}

void LogExecutor::Append(const LogEntry& entry) {
  MutexLock lock(mutex_);
  CAIRN_CHECK(entry.index == next_index_);
  ++next_index_;
  if (absl::Status admitted = entries_.Admit(entry); admitted.ok()) {
    queue_.emplace_back(PendingEntry{entry});
  } else {
    queue_.emplace_back(
        [this, why = absl::StrCat("ps/", options_.leader, " made an invalid decision: ", admitted.message())](
            Replies&) { Fail(absl::InternalError(why)); });
  }
}

absl::Status LogExecutor::AppendWithMean(const LogEntry& entry, std::optional<UpdateMean> mean) {
  MutexLock lock(mutex_);
  if (entry.index != next_index_) {
    return absl::FailedPreconditionError(
        absl::StrCat("entry ", entry.index, " of the log arrived, but entry ", next_index_, " comes next"));
  }
  CAIRN_RETURN_IF_ERROR(entries_.Admit(entry));
  ++next_index_;
  queue_.emplace_back(PendingEntry{.entry = entry, .mean = std::move(mean)});
  return absl::OkStatus();
}

void LogExecutor::Run(Task task) {
  MutexLock lock(mutex_);
  queue_.emplace_back(std::move(task));
}

void LogExecutor::RunBetweenUpdates(Task task) {
  Run([this, task = std::move(task)](Replies& replies) mutable {
    if (parts_.updater.measuring()) {
      after_update_.push_back(std::move(task));
    } else {
      task(replies);
    }
  });
}

void LogExecutor::ContinueFrom(int64_t next_index, int64_t version, Task restore) {
  MutexLock lock(mutex_);
  next_index_ = next_index;
  entries_.GoOnFrom(version);
  queue_.emplace_back([this, next_index, restore = std::move(restore)](Replies& replies) mutable {
    restore(replies);
    executed_ = next_index - 1;
  });
}

void LogExecutor::Flush() {
  {
    MutexLock lock(mutex_);
    if (executing_) return;  // the executing thread will execute what was queued
    executing_ = true;
  }
  int64_t executed = 0, reported = 0;
  while (std::optional<Pending> next = Next()) {
    Replies replies;
    const bool traced = Wants(trace());  // read before the update, which may begin another step
    if (Task* task = std::get_if<Task>(&*next)) {
      parts_.updater.DropSpeculative();
      (*task)(replies);
    } else {
      Execute(std::get<PendingEntry>(*next), replies);
      executed = executed_;
    }
    const TimePoint replying = std::chrono::steady_clock::now();
    for (EffectSink::Callback& reply : replies) effects().WhenReceived(std::move(reply));
    if (traced && !replies.empty()) {
      options_.recorder.TraceReplies(replying, store().current().version);
    }
    if (executed - reported >= kReportEvery) {
      ReportExecuted(executed);
      reported = executed;
    }
  }
  if (executed > reported) ReportExecuted(executed);
}

std::optional<LogExecutor::Pending> LogExecutor::Next() {
  MutexLock lock(mutex_);
  if (queue_.empty() || WaitsForPushes()) {
    executing_ = false;
    return std::nullopt;
  }
  Pending next = std::move(queue_.front());
  queue_.pop_front();
  return next;
}

// The PushTable notes what is missing under this lock, so that the thread that adds the last missing push
// finds `executing_` false, and executes the entry.
bool LogExecutor::WaitsForPushes() {
  const auto* pending = std::get_if<PendingEntry>(&queue_.front());
  if (pending == nullptr || !awaits_missing_ || pending->mean.has_value()) return false;
  if (parts_.updater.HasMean(VersionOf(pending->entry))) return false;
  return !parts_.pushes.AwaitMissing(ContributorsOf(pending->entry)).empty() && parts_.pushes.failure().ok();
}

void LogExecutor::ReportExecuted(int64_t index) {
  SequencerPort* const port = port_;
  if (port == nullptr) return;
  // Entries whose effects are lost must stay in the log: whoever continues it asks for them.
  effects().WhenReceived([port, index](const absl::Status& lost) {
    if (lost.ok()) port->ReportExecuted(index);
  });
}

void LogExecutor::Execute(PendingEntry& pending, Replies& replies) {
  const LogEntry& entry = pending.entry;
  if (pending.mean.has_value()) parts_.updater.SetMean(*std::move(pending.mean));
  if (const auto* measure = std::get_if<Measure>(&entry.action)) {
    ExecuteMeasure(entry, *measure);
  } else if (const auto* apply = std::get_if<Apply>(&entry.action)) {
    ExecuteApply(entry, *apply, replies);
  } else {
    effects().OnEntry(entry, /*mean=*/nullptr);
    if (const auto* refuse = std::get_if<Refuse>(&entry.action)) ExecuteRefuse(*refuse, replies);
    if (const auto* release = std::get_if<Release>(&entry.action)) ExecuteRelease(*release, replies);
    if (const auto* marker = std::get_if<Marker>(&entry.action)) ExecuteMarker(*marker, replies);
    if (const auto* config_change = std::get_if<ConfigChange>(&entry.action))
      ExecuteConfigChange(*config_change);
  }
  executed_ = entry.index;
}

absl::Status LogExecutor::WithInput(const LogEntry& entry, const Updater::Contributions& contributions,
                                    absl::FunctionRef<absl::Status(const Updater::Input&)> use) {
  const bool wanted = effects().WantsEntries();
  CAIRN_ASSIGN_OR_RETURN(const Updater::Input input,
                         parts_.updater.Prepare(entry, contributions, /*compute_mean=*/wanted));
  if (wanted) effects().OnEntry(entry, input.new_mean);
  return use(input);
}

void LogExecutor::ExecuteMeasure(const LogEntry& entry, const Measure& measure) {
  if (!parts_.pushes.failure().ok()) return;
  const TraceSpan span(trace(), TraceLane::kMeasure, "measure");
  Sums sums = {.index = entry.index, .slices = {}};
  absl::Status status = WithInput(
      entry, parts_.pushes.Find(measure.contributors), [&](const Updater::Input& input) -> absl::Status {
        CAIRN_ASSIGN_OR_RETURN(sums.slices, parts_.updater.MeasureNorms(measure.norms, input));
        return absl::OkStatus();
      });
  if (!status.ok()) {
    Fail(status);
    return;
  }
  {
    MutexLock lock(mutex_);
    unanswered_ = sums;
  }
  Pass("measured");
  if (SequencerPort* const port = port_; port != nullptr) port->ReportSums(std::move(sums));
}

void LogExecutor::ExecuteApply(const LogEntry& entry, const Apply& apply, Replies& replies) {
  if (!parts_.pushes.failure().ok()) return;
  if (apply.last) parts_.final_version.Set(apply.version);
  const bool traced = Wants(trace());
  TraceSpan span(trace(), TraceLane::kApply, "apply",
                 {.step = apply.version, .bytes = store().size() * int64_t{sizeof(float)}});
  const TimePoint began = std::chrono::steady_clock::now();
  Updater::Contributions contributions = parts_.pushes.Find(apply.contributors);
  const bool speculative = parts_.updater.TakeSpeculative(apply, contributions);
  absl::Status status = WithInput(entry, contributions, [&](const Updater::Input& input) {
    return parts_.updater.MakeUpdate(input, speculative);
  });
  if (!status.ok()) {
    Fail(status);
    return;
  }
  span.End();
  Pass("applied");
  parts_.updater.End();
  for (auto& contribution : contributions) {
    if (contribution.has_value()) contribution->data.clear();
  }
  {
    MutexLock lock(mutex_);
    unanswered_.reset();
    for (; !after_update_.empty(); after_update_.pop_back()) {
      queue_.emplace_front(std::move(after_update_.back()));
    }
  }
  options_.recorder.Count(apply, contributions, began);
  if (traced) options_.recorder.Trace(apply, contributions, began);
  if (trace() != nullptr) trace()->AtStep(apply.version + 1);
  const optim::Values values = store().current();
  for (const Gradient& gradient : apply.contributors) {
    const int64_t staleness = apply.version - 1 - gradient.base_version;
    if (apply.deferred) {
      parts_.pushes.Defer(gradient, staleness);
    } else {
      Settle(gradient.key, {v1::OUTCOME_ACCEPTED, staleness, values, speculative}, replies);
    }
  }
  if (serves()) parts_.updater.ExpectAfter(apply);
}

void LogExecutor::ExecuteRefuse(const Refuse& refuse, Replies& replies) {
  Settle(refuse.key, {OutcomeOf(refuse.reason), refuse.staleness, store().current()}, replies);
}

void LogExecutor::ExecuteRelease(const Release& release, Replies& replies) {
  const auto staleness = parts_.pushes.DeferredStaleness(release.key);
  if (!staleness.has_value()) return;  // the job has failed
  Settle(release.key, {v1::OUTCOME_ACCEPTED, *staleness, store().current()}, replies);
}

void LogExecutor::Settle(const PushKey& key, const Decision& decision, Replies& replies) {
  const optim::Values& values = decision.values;
  auto push = parts_.pushes.Take(key, {key.step, decision.outcome, values.version, decision.staleness});
  if (!push.has_value()) return;
  parts_.reads.MakeRoom();
  // Without room, or if the rows cannot be read, the worker reads the values or the rows later.
  const bool room = store().CheckRoomForReader().ok();
  for (PushTable::Waiting& waiting : push->waiting) {
    PushResult result = {.outcome = decision.outcome,
                         .duplicate = waiting.duplicate,
                         .staleness = decision.staleness,
                         .version = values.version,
                         .finished = parts_.final_version.IsReached(values.version),
                         .sent_early = waiting.speculative && decision.sent_early};
    if (waiting.read_values && !result.sent_early && room) result.values = values;
    if (waiting.wanted != nullptr) {
      const TraceSpan span(trace(), TraceLane::kReply, "read rows", {.step = values.version});
      if (auto rows = ReadWanted(parts_.tables, waiting.wanted); rows.ok()) result.rows = *std::move(rows);
    }
    replies.push_back(waiting.Answer(std::move(result)));
  }
}

void LogExecutor::ExecuteMarker(const Marker& marker, Replies& replies) {
  if (!serves()) {  // its readers must place a new marker
    parts_.reads.KeepNothing(marker.token);
    return;
  }
  parts_.reads.Prepare(marker);
  const absl::StatusOr<ReadResult> result = ReadHere(marker.snapshot);
  for (ReadReply& reader : parts_.reads.Reach(marker, result)) {
    replies.push_back(Answered<ReadResult>(std::move(reader), result));
  }
}

absl::StatusOr<ReadResult> LogExecutor::ReadHere(bool snapshot) {
  CAIRN_ASSIGN_OR_RETURN(ReadResult result, parts_.reads.Current());
  if (!snapshot) return result;
  Pass("snapshot");
  const TraceSpan span(trace(), TraceLane::kSnapshot, "copy slots");
  CAIRN_ASSIGN_OR_RETURN(result.slots, store().CopySlots());
  result.learning_rate = store().changed_learning_rate();
  result.groups = store().groups();
  result.skipped = store().skipped();
  for (size_t table = 1; table < parts_.tables.size(); ++table) {
    CAIRN_ASSIGN_OR_RETURN(result.tables.emplace_back(), parts_.tables[table].Save(/*beyond_budget=*/false));
  }
  return result;
}

void LogExecutor::ExecuteConfigChange(const ConfigChange& config_change) {
  // A speculative update may have been made with these settings of the groups.
  if (config_change.learning_rate.has_value() || config_change.end) parts_.updater.DropSpeculative();
  if (config_change.learning_rate.has_value()) store().SetLearningRate(*config_change.learning_rate);
  if (!config_change.groups.empty()) {
    if (absl::Status set = store().SetGroups(config_change.groups); !set.ok()) return Fail(set);
  }
  const int64_t version = store().current().version;
  if (!config_change.end || parts_.final_version.IsReached(version)) return;
  store().EndHere();
  parts_.final_version.Set(version);
}

void LogExecutor::AwaitMissingPushes() {
  MutexLock lock(mutex_);
  awaits_missing_ = true;
}

void LogExecutor::Fail(const absl::Status& failure) {
  auto pushes = parts_.pushes.Close(failure);
  if (!pushes.has_value()) return;
  std::vector<ReadReply> readers = parts_.reads.Close(failure);
  // A failure reveals nothing of the shard's state, so these replies need not wait.
  for (PushReply& reply : *pushes) reply(failure);
  for (ReadReply& reply : readers) reply(failure);
}

int64_t LogExecutor::next_index() const {
  MutexLock lock(mutex_);
  return next_index_;
}

int64_t LogExecutor::WaitsAt() const {
  MutexLock lock(mutex_);
  if (queue_.empty() || parts_.pushes.missing().empty()) return 0;
  const auto* pending = std::get_if<PendingEntry>(&queue_.front());
  return pending == nullptr ? 0 : pending->entry.index;
}

int64_t LogExecutor::queued() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(queue_.size());
}

std::optional<Sums> LogExecutor::UnansweredSums() const {
  MutexLock lock(mutex_);
  return unanswered_;
}

absl::Status LogExecutor::CheckWorker(int worker) const {
  MutexLock lock(mutex_);
  return entries_.CheckWorker(worker);
}

}  // namespace cairn::ps
