// One server's shard of a job: its variables, the staged pushes, and the execution of the round log. Knows no
// gRPC.
//
//   BeginPush ─► chunks ─► FinishPush ─► staged ──(round log)──► Apply   ─► new version, reply
//                                           │                │             (or at its Release)
//                                           │                └─► Refuse  ─► reply
//                                           └─ reported to the sequencer
//
// If the optimizer needs norms, a Measure precedes each Apply: this shard's sums of squares go to the
// sequencer, and the totals over all servers come back with the next entry.
//
// If the shard has a backup on another server (replicator.h), each entry is sent there with the mean of its
// gradients, and answers to clients wait until the backup has received the entry. A shard that is a backup
// executes the entries that it receives (shard_replica.cc). After its promotion, entries wait for the
// gradients that were lost with the old primary; their workers send them again.
//
// Thread-safe. The log is executed by whichever thread finds that no other thread executes it (Flush,
// FinishPush). Arithmetic runs outside the lock, under the `executing_` flag. Replies are called outside the
// lock, by the executing thread; they must not block.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/system/fault_points.h"
#include "common/trace/trace.h"
#include "optim/store/variable_store.h"
#include "ps/log/ledger.h"
#include "ps/log/log_validator.h"
#include "ps/log/marker_table.h"
#include "ps/log/sequencer.h"
#include "ps/replication/replicator.h"
#include "ps/shard/accumulator.h"
#include "ps/shard/metrics.h"
#include "ps/shard/speculative_update.h"

namespace cairn::ps {

struct PushRequest {
  Gradient gradient;
  bool read_values = false;  // answer with the values after the decision
  // Sends chunks of these values to the client before the decision. The chunks are valid only if
  // PushResult::sent_early is set. Null: the client wants no early values.
  SpeculativeUpdate::SendValues send_values{};
  // Flow control: grants the worker credit for more bytes of this push. Null: the transport has no flow
  // control.
  SpeculativeUpdate::Allow allow{};
};

struct PushResult {
  v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
  bool duplicate = false;
  int64_t staleness = 0;
  int64_t version = 0;  // the version after the decision
  bool finished = false;
  optim::Values values;  // data is null unless requested
  // `values` is null, because all of the values have already been passed to send_values().
  bool sent_early = false;
};

using PushReply = absl::AnyInvocable<void(absl::StatusOr<PushResult>)>;
using WriteReply = absl::AnyInvocable<void(absl::StatusOr<int64_t> version)>;

// A push whose chunks are arriving. Owned by the session; one thread. The shard outlives it.
class OpenPush {
 public:
  // `speculative`: receives the elements for a speculative update; may be null.
  OpenPush(const PushRequest& request, optim::BufferPool& pool, bool discard, SpeculativeUpdate* speculative)
      : request_(request),
        accumulator_(pool, Accumulator::Borrowed::kKept),
        discard_(discard),
        speculative_(speculative) {}
  ~OpenPush() {
    if (speculative_ != nullptr) speculative_->Abandon(request_.gradient.key);
  }
  OpenPush(const OpenPush&) = delete;
  OpenPush& operator=(const OpenPush&) = delete;

  // As Accumulator::Add(). Chunks of a repeated push are discarded.
  absl::Status AddChunk(const v1::Chunk& chunk, net::Payload payload);
  // As Accumulator::DestinationFor().
  absl::Span<float> DestinationFor(const v1::Chunk& chunk, int64_t count);

 private:
  friend class Shard;
  PushRequest request_;
  Accumulator accumulator_;
  const bool discard_;
  SpeculativeUpdate* speculative_;
};

class Shard final : public LogSink {
 public:
  struct Options {
    std::vector<net::Slice> slices;
    std::unique_ptr<optim::Optimizer> optimizer;  // null: nothing is trained
    int64_t final_version = 0;                    // 0: no end
    // Divides the learning rate of each update by max(1, staleness of its oldest contributor).
    bool staleness_aware_learning_rate = false;
    int64_t initial_version = 0;
    // Limit on all values, slots and buffers, in bytes.
    int64_t memory_limit = std::numeric_limits<int64_t>::max();
    // Whether updates are speculative (speculative_update.h). Only for a synchronous job without norms whose
    // rounds take all its workers, if the memory has room for another version and its slots.
    bool speculative_updates = false;
    std::optional<float> learning_rate{};  // set by an earlier config change
    ThreadPool* thread_pool = nullptr;     // as in VariableStore
    // Outlives the shard. Points: "push", "read", "snapshot", "measured", "applied".
    FaultPoints* faults = nullptr;
    Metrics* metrics = nullptr;                          // outlives the shard; counts the updates
    TraceRecorder* trace = nullptr;                      // outlives the shard; records each step
    int server = 0;                                      // index of the server that owns the shard
    int leader = 0;                                      // index of the server whose log it executes
    int most_workers = std::numeric_limits<int>::max();  // all worker numbers are below this limit
  };
  // Limits on pushes that await their decision, and on repeats of one push. Further pushes get
  // RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxStaged = 4096;
  static constexpr size_t kMaxRepeats = 16;

  explicit Shard(Options options);

  // Sets the port to which staged pushes are reported. To be called once, before the first push. `port` must
  // live as long as the shard is used.
  void ConnectTo(SequencerPort* port) { port_ = port; }
  // Sets the replicator that feeds the backup. To be called once, before anything is answered. `replicator`
  // must live as long as the shard is used. Null: there is no backup.
  void ReplicateTo(Replicator* replicator) { replicator_ = replicator; }

  optim::VariableStore& store() { return store_; }
  const optim::VariableStore& store() const { return store_; }

  // --- Pushes ---
  std::unique_ptr<OpenPush> BeginPush(const PushRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // The reply is INVALID_ARGUMENT if chunks are missing, RESOURCE_EXHAUSTED if too many pushes wait.
  // Otherwise the reply is sent after the decision. It lacks the requested values if the memory has no room
  // for both these values and the next version.
  void FinishPush(std::unique_ptr<OpenPush> push, PushReply reply) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Reads and writes ---
  // Without a marker: replies at once with the current values. With a marker: replies with the values at that
  // point of the log, when the log reaches it. UNAVAILABLE: the values of that marker have been dropped.
  // RESOURCE_EXHAUSTED, with the numbers: the memory has no room for a reader, or too many readers wait.
  void Read(const std::string& marker, ReadReply reply) ABSL_LOCKS_EXCLUDED(mutex_);
  // Overwrites the values for which `data` has elements, between two entries of the log. `done` receives the
  // version at that point.
  void Write(std::unique_ptr<Accumulator> data, WriteReply done) ABSL_LOCKS_EXCLUDED(mutex_);
  // As Write(), with a complete state from the store's state_pool().
  void WriteState(std::unique_ptr<Accumulator> state, WriteReply done) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- The log ---
  // Fails the job on this server if LogValidator refuses the entry.
  void Append(const LogEntry& entry) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Flush() override ABSL_LOCKS_EXCLUDED(mutex_);
  // Does nothing: a shard and its own sequencer are replaced together.
  void End(const absl::Status&) override {}
  // next_index(): the first entry that has not been appended. StagedGradients(): the staged pushes that have
  // no decision in the log yet. A follower reports both when it reconnects to the sequencer.
  int64_t next_index() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<Gradient> StagedGradients() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The last reported sums; nullopt once an entry that uses them has been executed.
  std::optional<Sums> UnansweredSums() const ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Replication ---
  // Sends the whole state to the replicator, between two updates.
  void Capture() ABSL_LOCKS_EXCLUDED(mutex_);
  // For a backup. The next three calls queue their work, and Flush() executes it. `state` is from the store's
  // state_pool(). INVALID_ARGUMENT, without effect, for a state that does not fit this shard.
  absl::Status RestoreReplica(const v1::ReplicatedShard& shard, std::shared_ptr<const AlignedBuffer> state)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // FAILED_PRECONDITION for an entry out of order. INVALID_ARGUMENT for an entry that LogValidator refuses,
  // or whose mean does not fit this shard. `mean`: null if the entry has no mean, or its contributors have no
  // examples.
  absl::Status AppendReplicated(const LogEntry& entry, const v1::ReplicatedEntry& replicated,
                                std::shared_ptr<const AlignedBuffer> mean) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status WriteReplicated(std::shared_ptr<const AlignedBuffer> values) ABSL_LOCKS_EXCLUDED(mutex_);
  // Promotes this backup to primary. From now on, an update whose gradients are missing waits for them.
  void Promote() ABSL_LOCKS_EXCLUDED(mutex_);
  // The pushes that the log waits for, because they were lost with the old primary.
  std::vector<PushKey> Missing() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The index of the entry that waits for the Missing() pushes; 0 if none does.
  int64_t WaitsAt() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the job: every waiting and future request is answered with `failure`. The first failure is kept.
  void Fail(absl::Status failure) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);

  // duplicates(): pushes that were repeated, or that arrived after their decision. rejected(): pushes, not
  // counting repeats, that were answered with REJECTED or FINISHED.
  int64_t duplicates() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t rejected() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The backlog: pushes without a decision, when the oldest of them was staged, and queued entries of the
  // log.
  struct Load {
    int64_t staged = 0;
    std::optional<TimePoint> staged_since{};
    int64_t queued = 0;
  };
  Load load() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The optimizer's slots, in their order in a complete state.
  std::vector<std::string> slot_names() const;

 private:
  struct Staged {
    Gradient gradient;
    GradientView data;  // none() is true without examples, and after the update
    TimePoint came{};
    // Set when the gradient is in an update and the answer waits for a Release.
    std::optional<int64_t> applied_staleness{};
    // A push, or a repeat of it, that waits for the decision.
    struct Waiting {
      bool read_values;
      bool duplicate;
      PushReply reply;
      bool speculative = false;  // receives the values chunk by chunk if the update is speculative
    };
    std::vector<Waiting> waiting;
  };
  // The mean of an update's contributors.
  struct UpdateMean {
    int64_t version = 0;
    std::shared_ptr<const AlignedBuffer> data;  // null: no contributor has examples
  };
  // Called when the lock has been released and the backup has received everything that the reply reveals.
  // `lost`: as in Replicator::Callback.
  using Reply = absl::AnyInvocable<void(const absl::Status& lost)>;
  using Replies = std::vector<Reply>;
  struct PendingEntry {
    LogEntry entry;
    std::optional<UpdateMean> mean{};  // received with the entry, in a backup
  };
  // Runs between two entries.
  using PendingTask = absl::AnyInvocable<void(Replies&)>;

  void WriteBetween(std::unique_ptr<Accumulator> data, bool state, WriteReply done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ExecuteQueue() ABSL_LOCKS_EXCLUDED(mutex_);
  void Execute(const LogEntry& entry, Replies& replies) ABSL_LOCKS_EXCLUDED(mutex_);
  // The next item to execute; nullopt if the queue is empty or its front waits for gradients.
  std::optional<std::variant<PendingEntry, PendingTask>> Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The contributors of `entry` whose gradients have not arrived here.
  std::vector<PushKey> MissingFor(const LogEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls `reply` now, or when the backup has received everything sent so far.
  void WhenReplicated(Reply reply);
  template <typename Result>
  void AnswerWhenReplicated(absl::AnyInvocable<void(absl::StatusOr<Result>)> reply,
                            absl::StatusOr<Result> answer) {
    if (replicator_.load() == nullptr) {
      reply(std::move(answer));
      return;
    }
    WhenReplicated([reply = std::move(reply), answer = std::move(answer)](const absl::Status& lost) mutable {
      reply(lost.ok() ? std::move(answer) : absl::StatusOr<Result>(lost));
    });
  }
  void ReportExecuted(int64_t index);
  void SendState();
  // Sends the entry that is about to be executed to the backup. `with_mean`: this entry is the first to use
  // the mean, which is sent with it.
  void SendEntry(const LogEntry& entry, bool with_mean);
  void ExecuteMeasure(const LogEntry& entry, const Measure& measure) ABSL_LOCKS_EXCLUDED(mutex_);
  void ExecuteApply(const LogEntry& entry, const Apply& apply, Replies& replies) ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls use(mean of the update to `version`). INTERNAL if a contributor's push is not staged, or has
  // examples but no values here.
  absl::Status WithMean(const LogEntry& entry, absl::Span<const Gradient> contributors, int64_t version,
                        absl::FunctionRef<absl::Status(const optim::VariableStore::Mean&)> use)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Count(const Apply& apply, TimePoint began) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null if no trace is recorded. A backup records none, because its updates repeat the primary's.
  TraceRecorder* trace() const { return port_.load() == nullptr ? nullptr : trace_; }
  // Returns the mean in a new buffer, or the gradient itself if it is the only one.
  UpdateMean MeanOf(int64_t version, absl::Span<const optim::ContributedGradient> gradients,
                    absl::Span<const GradientView> views);
  // Records when the gradients of the update were collected, and that their pushes flow into the update.
  void TraceContributors(const Apply& apply, TimePoint began) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExecuteRefuse(const Refuse& refuse, Replies& replies) ABSL_LOCKS_EXCLUDED(mutex_);
  void ExecuteRelease(const Release& release, Replies& replies) ABSL_LOCKS_EXCLUDED(mutex_);
  void ExecuteMarker(const Marker& marker, Replies& replies) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<ReadResult> ReadAtMarker(bool snapshot);
  // INVALID_ARGUMENT if the number of replicated values differs from the number of this shard's values.
  absl::Status CheckValues(const AlignedBuffer* values) const;
  // Drops the values of markers that no reader has fetched, oldest first, until there is room for the next
  // version.
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExecuteConfigChange(const ConfigChange& config_change);
  // Records the decision about one push in the ledger, and answers the clients that wait for it.
  // `speculative`: whether the update was speculative.
  void Settle(const PushKey& key, v1::Outcome outcome, int64_t staleness, const optim::Values& values,
              bool speculative, Replies& replies) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Publishes the speculative update, if it matches `apply`.
  bool TakeSpeculative(const Apply& apply) ABSL_LOCKS_EXCLUDED(mutex_);
  bool finished(int64_t version) const { return version >= final_version_; }

  void Pass(absl::string_view point) const {
    if (faults_ != nullptr) faults_->Pass(point);
  }

  FaultPoints* const faults_;
  Metrics* const metrics_;
  TraceRecorder* const trace_;
  const int server_, leader_;
  const std::unique_ptr<optim::Optimizer> optimizer_;
  const bool staleness_aware_learning_rate_;
  std::atomic<int64_t> final_version_;  // the log may lower it
  optim::VariableStore store_;
  std::unique_ptr<SpeculativeUpdate> speculative_;  // may be null
  std::atomic<SequencerPort*> port_{nullptr};       // null in a backup, until it is promoted
  std::atomic<Replicator*> replicator_{nullptr};    // null: there is no backup
  // Used by the executing thread only.
  std::optional<UpdateMean> mean_;  // the mean of the current update
  bool measuring_ = false;          // a Measure has been executed, but its Apply has not
  bool capture_wanted_ = false;     // capture the state after that Apply
  int64_t executed_ = 0;            // index of the last executed entry

  mutable Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  Ledger ledger_ ABSL_GUARDED_BY(mutex_);
  std::map<PushKey, Staged> staged_ ABSL_GUARDED_BY(mutex_);
  std::optional<Sums> unanswered_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::variant<PendingEntry, PendingTask>> queue_ ABSL_GUARDED_BY(mutex_);
  bool promoted_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<PushKey> missing_ ABSL_GUARDED_BY(mutex_);  // the front of queue_ waits for these pushes
  int64_t next_index_ ABSL_GUARDED_BY(mutex_) = 1;
  LogValidator entries_ ABSL_GUARDED_BY(mutex_);  // checks entries as they are appended
  bool executing_ ABSL_GUARDED_BY(mutex_) = false;
  MarkerTable markers_ ABSL_GUARDED_BY(mutex_);
  int64_t duplicates_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t rejected_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::ps
