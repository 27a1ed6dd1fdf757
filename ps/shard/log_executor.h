// Executes the round log on a shard: a queue of entries, and of tasks that run between two entries.
//
//   Append, Run ─► queue ─► Flush: one entry after another ─► updates, answers to pushes and reads
//                                        └─► EffectSink (effect_sink.h)
//
// The queue is executed by whichever thread finds that no other thread executes it. Arithmetic runs outside
// the lock, under the `executing_` flag. Replies are called outside the lock, by the executing thread; they
// must not block. Entries come from the job's sequencer, or with their means from another shard that has
// executed them (AppendWithMean).
//
// If the optimizer needs norms, a Measure precedes each Apply: this shard's sums of squares go to the
// sequencer, and the totals over all servers come back with the next entry.
//
// Owned by a Shard. Thread-safe. Append() is called under the sequencer's lock. The lock of the PushTable is
// taken while this lock is held; no other is.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/system/fault_points.h"
#include "common/trace/trace.h"
#include "optim/optimizer.h"
#include "optim/store/variable_store.h"
#include "ps/log/log_validator.h"
#include "ps/log/sequencer.h"
#include "ps/shard/effect_sink.h"
#include "ps/shard/final_version.h"
#include "ps/shard/push_table.h"
#include "ps/shard/read_table.h"
#include "ps/shard/update_recorder.h"
#include "ps/shard/updater.h"
#include "ps/table/tables.h"

namespace cairn::ps {

class LogExecutor {
 public:
  struct Options {
    absl::Span<const optim::Norms> norms{};
    int64_t initial_version = 0;
    int most_workers = std::numeric_limits<int>::max();  // all worker numbers are below this limit
    int leader = 0;                                      // index of the server whose log is executed
    FaultPoints* faults = nullptr;                       // points: "snapshot", "measured", "applied"
    UpdateRecorder recorder{/*server=*/0, nullptr, nullptr};
  };
  // The other parts of the shard, which outlive the executor.
  struct Parts {
    const Tables& tables;
    FinalVersion& final_version;
    PushTable& pushes;
    ReadTable& reads;
    Updater& updater;
  };
  LogExecutor(const Options& options, const Parts& parts);

  // As in Shard.
  void ConnectTo(SequencerPort* port) { port_ = port; }
  void SendEffectsTo(EffectSink* effects) { effects_ = effects; }
  SequencerPort* port() const { return port_; }
  EffectSink& effects() const { return *effects_; }

  // Called when the lock has been released, through EffectSink::WhenReceived().
  using Replies = std::vector<EffectSink::Callback>;
  using Task = absl::AnyInvocable<void(Replies& replies)>;

  // --- Inputs: queued, and executed by Flush() ---
  // Fails the job on this server if LogValidator refuses the entry.
  void Append(const LogEntry& entry) ABSL_LOCKS_EXCLUDED(mutex_);
  // An entry that another shard has executed. `mean`: the mean of its update, if the entry is the first to use
  // it. FAILED_PRECONDITION for an entry out of order. INVALID_ARGUMENT for an entry that LogValidator
  // refuses.
  absl::Status AppendWithMean(const LogEntry& entry, std::optional<UpdateMean> mean)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // `task` runs between two entries.
  void Run(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  // As Run(), but not between a Measure and its Apply.
  void RunBetweenUpdates(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Continues another log: `restore` brings the shard to `version`, and the next entry is `next_index`.
  void ContinueFrom(int64_t next_index, int64_t version, Task restore) ABSL_LOCKS_EXCLUDED(mutex_);
  void Flush() ABSL_LOCKS_EXCLUDED(mutex_);

  // From now on, an entry whose gradients are missing waits for them. Before, it fails the job.
  void AwaitMissingPushes() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the job: every waiting and future request is answered with `failure`. The first failure is kept.
  void Fail(const absl::Status& failure) ABSL_LOCKS_EXCLUDED(mutex_);

  // The first entry that has not been appended.
  int64_t next_index() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The last executed entry. For tasks only.
  int64_t executed() const { return executed_; }
  // The index of the entry that waits for missing pushes; 0 if none does.
  int64_t WaitsAt() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The length of the queue.
  int64_t queued() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The last reported sums; nullopt once an entry that uses them has been executed.
  std::optional<Sums> UnansweredSums() const ABSL_LOCKS_EXCLUDED(mutex_);
  // As LogValidator::CheckWorker().
  absl::Status CheckWorker(int worker) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct PendingEntry {
    LogEntry entry;
    std::optional<UpdateMean> mean{};  // received with the entry
  };
  using Pending = std::variant<PendingEntry, Task>;
  // The decision about one push. `values`: the values after it. `sent_early`: the clients that receive the
  // values chunk by chunk already have them.
  struct Decision {
    v1::Outcome outcome;
    int64_t staleness;
    optim::Values values;
    bool sent_early = false;
  };

  // The next item to execute; nullopt, ending execution, if the queue is empty or its front waits for pushes.
  std::optional<Pending> Next() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the front of the queue waits for pushes.
  bool WaitsForPushes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Execute(PendingEntry& pending, Replies& replies) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReportExecuted(int64_t index);
  void ExecuteMeasure(const LogEntry& entry, const Measure& measure) ABSL_LOCKS_EXCLUDED(mutex_);
  void ExecuteApply(const LogEntry& entry, const Apply& apply, Replies& replies) ABSL_LOCKS_EXCLUDED(mutex_);
  void ExecuteRefuse(const Refuse& refuse, Replies& replies);
  void ExecuteRelease(const Release& release, Replies& replies);
  void ExecuteMarker(const Marker& marker, Replies& replies);
  void ExecuteConfigChange(const ConfigChange& config_change);
  // Prepares the update of `entry`, sends the entry to the sink, and calls use(input).
  absl::Status WithInput(const LogEntry& entry, const Updater::Contributions& contributions,
                         absl::FunctionRef<absl::Status(const Updater::Input&)> use);
  // Records the decision in the ledger, and answers the clients that wait for it. Reads the rows that they want,
  // which must be those before the next entry.
  void Settle(const PushKey& key, const Decision& decision, Replies& replies);
  absl::StatusOr<ReadResult> ReadHere(bool snapshot);
  // Null if no trace is recorded. A shard without clients records none, because it repeats another's updates.
  TraceRecorder* trace() const { return serves() ? options_.recorder.trace() : nullptr; }
  // The variables.
  optim::VariableStore& store() const { return parts_.tables.store(); }
  // Whether the shard has clients.
  bool serves() const { return port_.load() != nullptr; }
  void Pass(absl::string_view point) const {
    if (options_.faults != nullptr) options_.faults->Pass(point);
  }

  const Options options_;
  const Parts parts_;
  NoEffects no_effects_;
  std::atomic<SequencerPort*> port_{nullptr};  // null until the shard serves clients
  std::atomic<EffectSink*> effects_{&no_effects_};
  // Used by the executing thread only.
  int64_t executed_ = 0;
  std::vector<Task> after_update_;  // run after the Apply of the current update

  mutable Mutex mutex_;
  std::deque<Pending> queue_ ABSL_GUARDED_BY(mutex_);
  bool executing_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t next_index_ ABSL_GUARDED_BY(mutex_) = 1;
  LogValidator entries_ ABSL_GUARDED_BY(mutex_);  // checks entries as they are appended
  bool awaits_missing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Sums> unanswered_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::ps
