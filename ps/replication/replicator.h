// The primary's side of replication: sends every change to the backup on another server, and defers
// answers to clients until the backup has received what the answers reveal (docs/design/replication.md).
//
//      ┌────────── process gone, no backup there, or its right has expired ───────────┐
//      ▼                                                                              │
//   kAlone ──► kCatchingUp ── whole state received ──► kInSync ── stream broken ──► kUnsure
//      ▲         │     ▲                                                              │
//      └ broken ─┘     └────────────── the backup agrees to start over ───────────────┘
//
//   any state ──► kFenced: the backup has been promoted, or may have been before its process ended
//
// Answers go out at once in kAlone and, while the backlog is small, in kCatchingUp. In kInSync they wait
// until the backup has received everything that was sent before them; in kUnsure they are deferred. In
// kFenced nothing is answered.
//
// In kUnsure the backup may be about to be promoted, and its silence proves nothing. Answers resume in three
// cases: the backup's process is gone (connection refused); the backup agrees to start over; or the backup's
// right to be promoted has expired (kRight after our last echo) and this process was not just paused. If the
// backup's process is gone or was restarted, it cannot report whether the backup had been promoted. The
// backup had not been promoted if it is known to have heard from us less than kSilent before its process
// ended.
//
// One per job and server, owned by the ActiveJob. Thread-safe. Callbacks of WhenReplicated() run outside the
// lock, in the caller's or a stream's thread, and must not block. Knows no gRPC. The work is a sequence of
// steps that do not block; they run in the replicator's own thread or, in simulated time, in calls of Step().
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "cairn/v1/replicate.pb.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/grpc/backoff.h"
#include "common/system/thread.h"
#include "ps/replication/replication_item.h"

namespace cairn::ps {

// A backup may be promoted up to this long after it sent the last heartbeat that its primary echoed.
inline constexpr auto kRight = std::chrono::seconds(10);
// A primary that hears nothing from its backup continues alone this long after its last echo.
inline constexpr auto kAloneAfter = std::chrono::seconds(12);
// A backup that has not heard from its primary for this long may be promoted.
inline constexpr auto kSilent = std::chrono::seconds(3);

// Called by a stream's threads, one call at a time; must not block.
class ReplicationStreamHandler {
 public:
  virtual ~ReplicationStreamHandler() = default;
  virtual void OnAnswer(const v1::ReplicationAck& answer) = 0;
  // The last call. `status` is the reason why the stream ended.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// One stream to the backup, from its opening to its end.
class ReplicationStream {
 public:
  // Closes the stream, and returns after OnClosed().
  virtual ~ReplicationStream() = default;
  // Queues the items, at least one; does not block. After the stream has ended, items are dropped.
  virtual void Send(std::vector<NumberedItem> items) = 0;
};

class Replicator final : private ReplicationStreamHandler {
 public:
  // `lost` is not OK if it will never be known whether the backup has received the items; clients get
  // this error.
  using Callback = absl::AnyInvocable<void(const absl::Status& lost)>;
  // The sources of items. On every stream, each source sends its state first.
  enum class Component { kShard, kSequencer, kMembers };
  static constexpr size_t kComponents = 3;

  struct Options {
    std::string shard;   // "ps/1", for messages
    std::string backup;  // "ps/0 at host:2222"
    v1::ReplicationOrigin origin;
    std::function<std::unique_ptr<ReplicationStream>(ReplicationStreamHandler&)> dial;
    // Makes each component call SendState() soon. Called from the replicator's thread, or from Step(),
    // until Stop().
    std::function<void()> capture;
    // While a backup catches up, answers wait if more bytes than this are outstanding, apart from the state.
    int64_t most_behind_bytes = 0;
    Duration allocating{};  // time that the backup may need to allocate memory, before its first answer
    // Null: the replicator uses the steady clock and has its own thread. Otherwise the owner calls Step().
    const Clock* clock = nullptr;
  };
  explicit Replicator(Options options);
  ~Replicator() override;

  void Start() ABSL_LOCKS_EXCLUDED(mutex_);
  // Performs the steps that are due. If Options::clock is set, the owner calls it, in one thread, after
  // Start().
  void Step() ABSL_LOCKS_EXCLUDED(mutex_);
  // Fails all waiting answers, because the server is stopping, and starts nothing new. Repeated calls have no
  // effect.
  void Quit() ABSL_LOCKS_EXCLUDED(mutex_);
  // As Quit(), and blocks until the thread and its stream have ended. Must not be called from a thread on
  // which the end of a stream depends.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether `component` has sent its state on the current stream, so that its items are wanted. Items of other
  // components are dropped.
  bool wants(Component component) const ABSL_LOCKS_EXCLUDED(mutex_);
  void SendState(Component component, ReplicationItem item) ABSL_LOCKS_EXCLUDED(mutex_);
  // While the backup is in sync, reports of staged pushes and executed entries are held back until something
  // must be sent: an answer that waits for them, any other item, or the echo of a heartbeat.
  void Send(Component component, ReplicationItem item) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends a run of a mean, unless `component` has not sent its state.
  void SendMean(Component component, MeanRun run) ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls `then` when the backup has received everything sent before; at once if no answer needs to wait. Unless
  // `send` is set, items that are held back remain so until the next call of Flush(), which must follow.
  void WhenReplicated(Callback then, bool send = true) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends the items that answers wait for.
  void Flush() ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether the backup has been in sync at least once.
  bool was_in_sync() const ABSL_LOCKS_EXCLUDED(mutex_);
  // If this primary is fenced, because the backup has been promoted or may have been: the reason, for
  // messages. The owner must then drop the shard. Empty if this primary is not fenced.
  std::string fenced() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class State { kAlone, kCatchingUp, kInSync, kUnsure, kFenced, kStopped };
  using Calls = std::vector<std::pair<Callback, absl::Status>>;

  void OnAnswer(const v1::ReplicationAck& answer) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnClosed(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Performs one step of a stream's life; false if there is nothing to do yet.
  bool Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  // Opens a stream if one is due; otherwise returns false.
  bool Open() ABSL_LOCKS_EXCLUDED(mutex_);
  // The backup has agreed to start over: asks every component for its state.
  void Agree() ABSL_LOCKS_EXCLUDED(mutex_);
  void BecomeInSync() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the stream, and draws conclusions from the reason why it ended.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  // Logs that the backup is lost, unless the stream has just broken or the server is stopping.
  void LogThatBackupIsLost() ABSL_LOCKS_EXCLUDED(mutex_);
  // Sets the state from the reason why a stream ended.
  void Conclude(const absl::Status& end) ABSL_LOCKS_EXCLUDED(mutex_);
  // Numbers the item and holds it back until SendHeld(). Returns its number.
  uint64_t Hold(ReplicationItem item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendHeld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t SendNow(ReplicationItem item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Wants(Component component) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stream_ != nullptr && sent_state_[static_cast<size_t>(component)];
  }
  // Whether the backup's right to be promoted has expired, and the backup has had time to report a promotion.
  bool MayGoOnAlone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For a backup whose process has ended: whether it may have been promoted before, because it had not heard
  // from us for more than kSilent.
  bool MayHaveBeenReplaced() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fence() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the stream has ended, or has brought no answer for too long.
  bool Ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return state_ == State::kFenced || state_ == State::kStopped;
  }
  // Wakes the thread, because there is something to do.
  void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TimePoint Now() const;
  bool AnswersWait() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes and returns the calls that need not wait any more.
  Calls Due() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Make(Calls calls);

  const Options options_;

  // Used by the stepping thread only.
  enum class Phase { kNone, kAgreeing, kSendingState, kHoldingState, kInSync };
  Phase phase_ = Phase::kNone;
  bool SendsState() const { return phase_ == Phase::kSendingState || phase_ == Phase::kHoldingState; }
  std::unique_ptr<ReplicationStream> open_;  // the current stream; null in kNone
  uint64_t awaited_ = 0;  // number of the awaited item: the origin, or the last item of the state
  TimePoint opened_, next_open_, last_said_;
  net::Backoff backoff_;

  mutable Mutex mutex_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kAlone;
  bool was_in_sync_ ABSL_GUARDED_BY(mutex_) = false;
  // False while a backup is in sync, so that its failure is logged once. Initially true: there is no backup
  // yet.
  bool has_lost_backup_ ABSL_GUARDED_BY(mutex_) = true;
  // The warning about the lost backup, while it is too early to log it.
  std::string untold_loss_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t wakes_ ABSL_GUARDED_BY(mutex_) = 0;                   // calls of Wake()
  ReplicationStream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;  // open_, while it is in use
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mutex_);   // set when the stream has ended
  std::array<bool, kComponents> sent_state_ ABSL_GUARDED_BY(mutex_){};
  std::vector<NumberedItem> held_ ABSL_GUARDED_BY(mutex_);  // to be sent together with the next items
  SentMean sent_mean_ ABSL_GUARDED_BY(mutex_);              // on the current stream
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;               // number of the last item, over all streams
  uint64_t replicated_ ABSL_GUARDED_BY(mutex_) = 0;         // number of the last item that the backup has
  Backlog behind_ ABSL_GUARDED_BY(mutex_);
  Duration for_state_ ABSL_GUARDED_BY(mutex_){};  // the time that the backup may need for the state
  // (item number, callback): the callback is called when the backup has received the item.
  std::deque<std::pair<uint64_t, Callback>> waiting_ ABSL_GUARDED_BY(mutex_);
  // The reason for kFenced; otherwise empty.
  std::string fenced_ ABSL_GUARDED_BY(mutex_);
  TimePoint last_answer_ ABSL_GUARDED_BY(mutex_);
  // (item number, time of sending) of the echoes that the backup has not received yet.
  std::deque<std::pair<uint64_t, TimePoint>> echoes_ ABSL_GUARDED_BY(mutex_);
  // last_step_: when Step() was called last. awake_since_: when Step() was called after the last pause of
  // more than kSilent.
  TimePoint last_step_ ABSL_GUARDED_BY(mutex_), awake_since_ ABSL_GUARDED_BY(mutex_);
  // heard_: the latest time at which we sent an item that the backup is known to have received. broken_: when
  // the stream of a backup in sync was last seen to break.
  TimePoint heard_ ABSL_GUARDED_BY(mutex_), broken_ ABSL_GUARDED_BY(mutex_);
  TimePoint last_echo_ ABSL_GUARDED_BY(mutex_);
  // ReplicationAck.keeper of two processes. keeper_: the process that last agreed to be the backup.
  // answering_: the process that answered last.
  uint64_t keeper_ ABSL_GUARDED_BY(mutex_) = 0, answering_ ABSL_GUARDED_BY(mutex_) = 0;
  Thread thread_;
};

}  // namespace cairn::ps
