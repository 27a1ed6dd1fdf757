// The complete pushes of a shard: what has come, and who waits for which decision.
//
//   Add ─► staged ──► Take (decided: the waiting clients are answered)
//             └─────► Defer (in an update, but the answer waits for a Release) ─► Take
//
// The ledger remembers which pushes have come and how they were decided, so that each counts once. A repeat of
// a staged push waits for the same decision; a repeat of a decided push is answered from the ledger. The
// numbers of staged pushes and of waiting repeats are limited.
//
// Owned by a Shard. Thread-safe: sessions add pushes, and the executor of the log decides them. Replies are
// never called here. Taken while LogExecutor's lock is held; with its own lock held it takes only that of the
// VariableStore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/replicate.pb.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "optim/store/variable_store.h"
#include "ps/log/ledger.h"
#include "ps/shard/effect_sink.h"
#include "ps/shard/final_version.h"
#include "ps/shard/open_push.h"
#include "ps/table/table.h"
#include "ps/table/wanted_rows.h"

namespace cairn::ps {

class PushTable {
 public:
  // Limits on pushes that await their decision, and on repeats of one push. Further pushes get
  // RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxStaged = 4096;
  static constexpr size_t kMaxRepeats = 16;

  // A push, or a repeat of it, that waits for the decision.
  struct Waiting {
    bool read_values = false;
    bool speculative = false;  // receives the values chunk by chunk if the update is speculative
    std::shared_ptr<const WantedRows> wanted{};  // the rows that the answer shall contain; null: none
    PushReply reply{};
    WorkSource work{};  // may be null
    bool duplicate = false;

    // The reply with `answer`, and with the work items as they are now. They may depend on events that the
    // backup has not received; the wait of the reply covers these events too.
    EffectSink::Callback Answer(absl::StatusOr<PushResult> answer);
  };
  struct Staged {
    Gradient gradient{};
    PushData data{};  // empty after the update
    TimePoint came{};
    // Set when the gradient is in an update and the answer waits for a Release.
    std::optional<int64_t> applied_staleness{};
    std::vector<Waiting> waiting{};
  };
  // The backlog: pushes without a decision, and when the oldest of them was staged.
  struct Load {
    int64_t staged = 0;
    std::optional<TimePoint> staged_since{};
  };

  // Both must outlive the table.
  PushTable(const optim::VariableStore& store, const FinalVersion& final_version)
      : store_(store), final_version_(final_version) {}

  // --- Sessions ---
  // Whether the push has been staged or decided before, or is older than one that has.
  bool IsKnown(const PushKey& key) const ABSL_LOCKS_EXCLUDED(mutex_);

  struct CompletePush {
    Gradient gradient;
    PushData data;
    Waiting waiting;
  };
  struct Added {
    bool staged = false;       // the push is new, and must be reported to the sequencer
    bool was_awaited = false;  // AwaitMissing() returned the push, and now none is missing
    std::optional<absl::StatusOr<PushResult>> answer{};  // the answer of a push that does not wait
  };
  // Stages the push, or lets it wait as a repeat. Takes `data` if it stages the push, and `waiting` if the
  // push waits; otherwise `push` is unchanged, and the caller sends `answer`. RESOURCE_EXHAUSTED if too many
  // pushes wait.
  Added Add(CompletePush& push) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- The executor ---
  struct Contribution {
    PushData data;
    TimePoint came;
  };
  // The staged pushes of these gradients, in their order; nullopt for a push that is not staged.
  std::vector<std::optional<Contribution>> Find(absl::Span<const Gradient> contributors) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Records the decision in the ledger. Returns the push, with the clients that wait for it, and forgets it;
  // nullopt if it is not staged.
  std::optional<Staged> Take(const PushKey& key, const Ledger::Ruling& ruling) ABSL_LOCKS_EXCLUDED(mutex_);
  // The gradient is in an update, and its answer waits for a Release. A push that has not come is expected.
  void Defer(const Gradient& gradient, int64_t staleness) ABSL_LOCKS_EXCLUDED(mutex_);
  // The staleness passed to Defer(); nullopt if the answer of this push is not deferred.
  std::optional<int64_t> DeferredStaleness(const PushKey& key) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the gradients whose pushes are not staged. The log waits for them until they have been added.
  std::vector<PushKey> AwaitMissing(absl::Span<const Gradient> contributors) ABSL_LOCKS_EXCLUDED(mutex_);

  // Every later push gets `failure`. Returns the replies of all waiting pushes; nullopt, without effect, if
  // the table has been closed before.
  std::optional<std::vector<PushReply>> Close(const absl::Status& failure) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Queries ---
  // The pushes that the log waits for.
  std::vector<PushKey> missing() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The staged pushes that have no decision in the log yet.
  std::vector<Gradient> StagedGradients() const ABSL_LOCKS_EXCLUDED(mutex_);
  // duplicates(): pushes that were repeated, or that arrived after their decision. rejected(): pushes, not
  // counting repeats, that were answered with REJECTED or FINISHED.
  int64_t duplicates() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t rejected() const ABSL_LOCKS_EXCLUDED(mutex_);
  Load load() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Saves the decisions, the deferred answers and the counters. Clients send undecided pushes again.
  void Save(v1::ReplicatedShard& state) const ABSL_LOCKS_EXCLUDED(mutex_);
  // `deferred`: the gradients and their staleness.
  void Restore(const v1::ReplicatedShard& state, absl::Span<const std::pair<Gradient, int64_t>> deferred)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // The answer to a push that is neither new nor staged.
  PushResult AnswerKnown(const PushKey& key, const Ledger::Verdict& verdict)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const optim::VariableStore& store_;
  const FinalVersion& final_version_;

  mutable Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  Ledger ledger_ ABSL_GUARDED_BY(mutex_);
  std::map<PushKey, Staged> staged_ ABSL_GUARDED_BY(mutex_);
  std::vector<PushKey> missing_ ABSL_GUARDED_BY(mutex_);
  int64_t duplicates_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t rejected_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::ps
