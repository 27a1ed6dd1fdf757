// One server's part of a job: its variables, the pushes it holds, and the execution of the round log. The
// heart of a parameter server; knows no gRPC.
//
//   BeginPush ─► chunks ─► FinishPush ─► staged ──(round log)──► Apply   ─► new version, reply
//                                           │                │             (or at its Release)
//                                           │                └─► Refuse  ─► reply
//                                           └─ reported to the sequencer
//
// Where the optimizer needs norms, a Measure comes before each Apply: this shard's sums of squares go to the
// sequencer, and those over all servers come back with the next entry.
//
// With a copy on another server (replicator.h), each entry is sent there with the mean that it takes, and
// what clients are told waits until it is there too. A shard that is such a copy executes these
// (shard_copy.cc); when it takes the place of the one that it is the copy of, entries wait for gradients that
// their workers must send again.
//
// Thread-safe. The log is executed by whichever thread finds it not being executed (Flush, FinishPush);
// arithmetic runs outside the lock, under the `executing_` flag. Replies are called outside the lock, by the
// executing thread; they must not block.
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
#include "common/core/fault_points.h"
#include "common/core/mutex.h"
#include "common/core/trace.h"
#include "ps/accumulator.h"
#include "ps/entry_check.h"
#include "ps/ledger.h"
#include "ps/marks.h"
#include "ps/meters.h"
#include "ps/replicator.h"
#include "ps/sequencer.h"
#include "ps/update_ahead.h"
#include "ps/variable_store.h"

namespace cairn::ps {

// How a client is told of a refusal.
v1::Outcome OutcomeOf(Refuse::Reason reason);

struct PushRequest {
  Gradient gradient;
  bool read_values = false;  // answer with the values that the decision left
  // May take pieces of these values before the decision, any of which may be void (PushResult::sent_ahead).
  // Null: not wanted.
  UpdateAhead::SendPiece send_piece{};
  // Lets the worker send so many more bytes of it, if that can be told. Null: it need not hear of that.
  UpdateAhead::Allow allow{};
};

struct PushResult {
  v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
  bool duplicate = false;
  int64_t staleness = 0;
  int64_t version = 0;  // after the decision
  bool finished = false;
  Values values;            // data is null unless asked for
  bool sent_ahead = false;  // `values` is null, and what send_piece() got is all of them
};

using PushReply = absl::AnyInvocable<void(absl::StatusOr<PushResult>)>;
using WriteReply = absl::AnyInvocable<void(absl::StatusOr<int64_t> version)>;

// A push whose chunks are arriving. Owned by the session; one thread. The shard outlives it.
class OpenPush {
 public:
  // `ahead`: who wants to hear of its elements; may be null.
  OpenPush(const PushRequest& request, BufferPool& pool, bool discard, UpdateAhead* ahead)
      : request_(request), accumulator_(pool, Accumulator::Lent::kKept), discard_(discard), ahead_(ahead) {}
  ~OpenPush() {
    if (ahead_ != nullptr) ahead_->Abandon(request_.gradient.key);
  }
  OpenPush(const OpenPush&) = delete;
  OpenPush& operator=(const OpenPush&) = delete;

  // As Accumulator::Add(). The chunks of a push that was seen before are not kept.
  absl::Status AddChunk(const v1::Chunk& chunk, net::Payload payload);
  // As Accumulator::PlaceFor().
  absl::Span<float> PlaceFor(const v1::Chunk& chunk, int64_t count);

 private:
  friend class Shard;
  PushRequest request_;
  Accumulator accumulator_;
  const bool discard_;
  UpdateAhead* ahead_;
};

class Shard final : public LogSink {
 public:
  struct Options {
    std::vector<net::Slice> slices;
    std::unique_ptr<Optimizer> optimizer;  // null: nothing is trained
    int64_t final_version = 0;             // 0: no end
    // Each update at the learning rate divided by max(1, staleness of its oldest contributor).
    bool staleness_aware_learning_rate = false;
    int64_t initial_version = 0;
    int64_t memory_limit = std::numeric_limits<int64_t>::max();  // bytes, of all values, slots and buffers
    // Updates are made while their gradients arrive (update_ahead.h): of a synchronous job without norms
    // whose rounds are of all its workers, where memory has room for another version and other slots.
    bool update_ahead = false;
    std::optional<float> learning_rate{};  // amended before
    Crew* crew = nullptr;                  // as VariableStore's
    FaultPoints* faults =
        nullptr;               // outlives the shard; passes "push", "read", "snapshot", "measured", "applied"
    Meters* meters = nullptr;  // likewise; counts the updates
    TraceRecorder* trace = nullptr;                      // likewise; is told of each step
    int server = 0;                                      // whose shard it is
    int leader = 0;                                      // index of the server whose log it executes
    int most_workers = std::numeric_limits<int>::max();  // have numbers below it
  };
  // Pushes that wait for their decision, and repeats of one of them: more are RESOURCE_EXHAUSTED.
  static constexpr size_t kMostStaged = 4096;
  static constexpr size_t kMostRepeats = 16;

  explicit Shard(Options options);

  // Where staged pushes are reported. Once, before the first push; `port` outlives the shard's use.
  void ConnectTo(SequencerPort* port) { port_ = port; }
  // Where the copy is kept up. Once, before anybody is answered; outlives the shard's use. Null: there is
  // none.
  void ReplicateTo(Replicator* replicator) { replicator_ = replicator; }

  VariableStore& store() { return store_; }
  const VariableStore& store() const { return store_; }

  // --- Pushes ---
  std::unique_ptr<OpenPush> BeginPush(const PushRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // INVALID_ARGUMENT in the reply when chunks are missing, RESOURCE_EXHAUSTED when too many pushes wait.
  // Otherwise the reply comes with the decision; without the values that it asks for where there is no room
  // to hold them beside the next version.
  void FinishPush(std::unique_ptr<OpenPush> push, PushReply reply) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Reads and writes ---
  // Without a mark: the current values, at once. With one: the values at that point of the log, when it is
  // reached. ABORTED for a mark whose values are not kept any more. RESOURCE_EXHAUSTED, with the numbers,
  // when the memory has no room for a reader, or too many wait.
  void Read(const std::string& mark, ReadReply reply) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes the place of the values that have come; takes effect between two entries of the log, at the version
  // that `done` gets.
  void Write(std::unique_ptr<Accumulator> data, WriteReply done) ABSL_LOCKS_EXCLUDED(mutex_);
  // Likewise a whole state, complete, of the store's state_pool().
  void WriteState(std::unique_ptr<Accumulator> state, WriteReply done) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- The log ---
  // The job fails here at an entry that EntryCheck refuses.
  void Append(const LogEntry& entry) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Flush() override ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const absl::Status&) override {}  // a shard and its own sequencer are replaced together
  // The first entry that has not been appended, and the pushes whose decision has not: what a follower tells
  // a leader that it has found again.
  int64_t next_index() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<Gradient> StagedGradients() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The last sums that were reported, while no entry that needs them has been executed.
  std::optional<Sums> UnansweredSums() const ABSL_LOCKS_EXCLUDED(mutex_);

  // --- The copy on another server ---
  // Sends the replicator all that this is, between two updates.
  void Capture() ABSL_LOCKS_EXCLUDED(mutex_);
  // The other side: `state` is of the store's state_pool(). Flush() executes what these queue.
  // INVALID_ARGUMENT, without effect, for what does not fit this shard.
  absl::Status RestoreCopied(const v1::CopiedShard& shard, std::shared_ptr<const AlignedBuffer> state)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // FAILED_PRECONDITION for an entry out of order; INVALID_ARGUMENT for one that EntryCheck refuses, or whose
  // mean is not of this shard. `mean`: null where the entry brings none, or is of no example.
  absl::Status AppendCopied(const LogEntry& entry, const v1::CopiedEntry& copied,
                            std::shared_ptr<const AlignedBuffer> mean) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status WriteCopied(std::shared_ptr<const AlignedBuffer> values) ABSL_LOCKS_EXCLUDED(mutex_);
  // From now on this serves: an update whose gradients are not here waits for them.
  void TakePlace() ABSL_LOCKS_EXCLUDED(mutex_);
  // The pushes that the log waits for, since they went with another server.
  std::vector<PushKey> Missing() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Index of the entry that waits for them; 0: none does.
  int64_t WaitsAt() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the job: everything that waits and all that comes is answered with `failure`. The first failure
  // stays.
  void Fail(absl::Status failure) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Pushes that came a second time, or when their decision was there; and those, first ones, that were
  // answered as REJECTED or FINISHED.
  int64_t duplicates() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t rejected() const ABSL_LOCKS_EXCLUDED(mutex_);
  // What waits: pushes without a decision, the oldest of them, and entries of the log.
  struct Load {
    int64_t staged = 0;
    std::optional<TimePoint> staged_since{};
    int64_t queued = 0;
  };
  Load load() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The optimizer's, in the order of a state.
  std::vector<std::string> slot_names() const;

 private:
  struct Staged {
    Gradient gradient;
    HeldElements data;  // none when it has no examples, or has been applied
    TimePoint came{};
    // Its gradient is in an update, and the answer waits for a Release.
    std::optional<int64_t> applied_staleness{};
    // A repeat of the push waits for the same decision.
    struct Waiting {
      bool read_values;
      bool duplicate;
      PushReply reply;
      bool ahead = false;  // it gets the values piece by piece, if the update is made ahead
    };
    std::vector<Waiting> waiting;
  };
  // What an update is made of, once it is known: the mean of its contributors.
  struct UpdateMean {
    int64_t version = 0;
    std::shared_ptr<const AlignedBuffer> data;  // null: of no example
  };
  // Calls to make when the lock is released and the copy has what they tell; `lost`: it never will.
  using Reply = absl::AnyInvocable<void(const absl::Status& lost)>;
  using Replies = std::vector<Reply>;
  struct PendingEntry {
    LogEntry entry;
    std::optional<UpdateMean> mean{};  // of a copied one
  };
  // What is done between two entries.
  using PendingTask = absl::AnyInvocable<void(Replies&)>;

  void WriteBetween(std::unique_ptr<Accumulator> data, bool state, WriteReply done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ExecuteQueue() ABSL_LOCKS_EXCLUDED(mutex_);
  void Execute(const LogEntry& entry, Replies& replies) ABSL_LOCKS_EXCLUDED(mutex_);
  // The next thing to execute; none when there is none, or it waits for gradients.
  std::optional<std::variant<PendingEntry, PendingTask>> Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of an entry's contributors, those that are not here.
  std::vector<PushKey> MissingFor(const LogEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Now, or when the copy has what has been sent.
  void WhenHeld(Reply reply);
  template <typename Result>
  void AnswerWhenHeld(absl::AnyInvocable<void(absl::StatusOr<Result>)> reply, absl::StatusOr<Result> answer) {
    if (replicator_.load() == nullptr) {
      reply(std::move(answer));
      return;
    }
    WhenHeld([reply = std::move(reply), answer = std::move(answer)](const absl::Status& lost) mutable {
      reply(lost.ok() ? std::move(answer) : absl::StatusOr<Result>(lost));
    });
  }
  void ReportExecuted(int64_t index);
  void SendState();
  // Sends the entry that is about to be executed, with the mean where it is the first to take it.
  void SendEntry(const LogEntry& entry, bool with_mean);
  void ExecuteMeasure(const LogEntry& entry, const Measure& measure) ABSL_LOCKS_EXCLUDED(mutex_);
  void ExecuteApply(const LogEntry& entry, const Apply& apply, Replies& replies) ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls use(what the update to `version` is made of). INTERNAL when a push of the contributors is not held,
  // or has no values here and counts.
  absl::Status WithMean(const LogEntry& entry, absl::Span<const Gradient> contributors, int64_t version,
                        absl::FunctionRef<absl::Status(const VariableStore::Mean&)> use)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Count(const Apply& apply, TimePoint began) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null where nothing is recorded: also of a copy, whose updates are those of the server that it follows.
  TraceRecorder* trace() const { return port_.load() == nullptr ? nullptr : trace_; }
  // The mean of these as a buffer of its own, or the one gradient that it is.
  UpdateMean MeanOf(int64_t version, absl::Span<const ContributedGradient> gradients,
                    absl::Span<const HeldElements> held);
  // What was collected from when on, and where the pushes of it end.
  void TraceContributors(const Apply& apply, TimePoint began) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExecuteRefuse(const Refuse& refuse, Replies& replies) ABSL_LOCKS_EXCLUDED(mutex_);
  void ExecuteRelease(const Release& release, Replies& replies) ABSL_LOCKS_EXCLUDED(mutex_);
  void ExecuteMark(const Mark& mark, Replies& replies) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<ReadResult> ReadAtMark(bool snapshot);
  // INVALID_ARGUMENT for copied values that are not as many as there are here.
  absl::Status CheckValues(const AlignedBuffer* values) const;
  // Kept values whose readers have not come go, oldest first, until the next version has room.
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExecuteAmendment(const Amendment& amendment);
  // The decision about one push: into the ledger, and to those who wait for it. `made_ahead`: by Take().
  void Settle(const PushKey& key, v1::Outcome outcome, int64_t staleness, const Values& values,
              bool made_ahead, Replies& replies) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The update is there already, as it was guessed.
  bool TakeAhead(const Apply& apply) ABSL_LOCKS_EXCLUDED(mutex_);
  bool finished(int64_t version) const { return version >= final_version_; }

  void Pass(absl::string_view point) const {
    if (faults_ != nullptr) faults_->Pass(point);
  }

  FaultPoints* const faults_;
  Meters* const meters_;
  TraceRecorder* const trace_;
  const int server_, leader_;
  const std::unique_ptr<Optimizer> optimizer_;
  const bool staleness_aware_learning_rate_;
  std::atomic<int64_t> final_version_;  // the log may lower it
  VariableStore store_;
  std::unique_ptr<UpdateAhead> ahead_;            // may be null
  std::atomic<SequencerPort*> port_{nullptr};     // of a copy null, until it takes the place
  std::atomic<Replicator*> replicator_{nullptr};  // null: no copy is kept up
  // The executing thread's.
  std::optional<UpdateMean> mean_;  // of the update under way
  bool measuring_ = false;          // a Measure was executed, its Apply not
  bool capture_wanted_ = false;     // after that Apply
  int64_t executed_ = 0;            // index of the last entry

  mutable Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  Ledger ledger_ ABSL_GUARDED_BY(mutex_);
  std::map<PushKey, Staged> staged_ ABSL_GUARDED_BY(mutex_);
  std::optional<Sums> unanswered_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::variant<PendingEntry, PendingTask>> queue_ ABSL_GUARDED_BY(mutex_);
  bool took_place_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<PushKey> missing_ ABSL_GUARDED_BY(mutex_);  // the front waits for them
  int64_t next_index_ ABSL_GUARDED_BY(mutex_) = 1;
  EntryCheck entries_ ABSL_GUARDED_BY(mutex_);  // that come: of all that have
  bool executing_ ABSL_GUARDED_BY(mutex_) = false;
  Marks marks_ ABSL_GUARDED_BY(mutex_);
  int64_t duplicates_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t rejected_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::ps
