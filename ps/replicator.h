// The serving side of a part's live copy on another server: sends what happens, and holds back what clients
// are told until the copy has it too (docs/design/replication.md).
//
//            ┌──────────────── the copy is not there, or keeps none ◄─────────────┐
//            ▼                                                                     │
//   kAlone ──► kCatchingUp ── all of the state has come ──► kWhole ── broken ──► kUnsure
//   ▲   answers at once   │                                   answers are held back │
//   └──── broken ─────────┘◄────────────── the copy agrees to begin anew ───────────┘
//
//   any ── the copy says that it has taken our place, or may have before its process was gone ──► kDeposed:
//                                                                      nobody is told anything any more
//
// In kUnsure the copy may be about to take our place, so silence tells nothing: answers go out again when its
// process is gone (connection refused), when it agrees to begin anew, or when its right to take our place is
// over (kRight after our last echo) and we have not just woken up. A process that is gone, or has begun a new
// life, cannot say whether it had taken our place: it had not where it was known to have heard of us less
// than kSilent before.
//
// One per job and server, owned by the ActiveJob. Thread-safe; callbacks of WhenHeld() run outside its lock,
// in the caller's thread or a stream's, and must not block. Knows no gRPC. What is to be done it does step by
// step, which never wait: in a thread of its own or, in simulated time, when it is called.
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
#include "common/core/aligned_buffer.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/core/thread.h"
#include "common/net/backoff.h"

namespace cairn::ps {

// A copy may take the place of its server for so long after the last beat that came back as an echo ...
inline constexpr auto kRight = std::chrono::seconds(10);
// ... and a server that hears nothing of its copy goes on without it so long after its last echo.
inline constexpr auto kAloneAfter = std::chrono::seconds(12);
// A copy that has not heard of its server for so long may take its place.
inline constexpr auto kSilent = std::chrono::seconds(3);

// One thing that happened. The floats are one after another.
struct CopyItem {
  v1::CopyBody body;
  std::vector<std::shared_ptr<const AlignedBuffer>> floats{};
  bool state = false;  // the floats are a whole state
};

// Called by a stream's threads, one call at a time; must not block.
class CopyStreamHandler {
 public:
  virtual ~CopyStreamHandler() = default;
  virtual void OnAnswer(const v1::CopyAnswer& answer) = 0;
  // The last call: why the stream ended.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// One way to the copy, from its opening to its end.
class CopyStream {
 public:
  // Closes, and returns after OnClosed().
  virtual ~CopyStream() = default;
  // Queues; does not block. After the end nothing is sent.
  virtual void Send(uint64_t number, CopyItem item) = 0;
};

class Replicator final : private CopyStreamHandler {
 public:
  // `lost` is not OK when it will never be known whether the copy has it: clients are told that.
  using Held = absl::AnyInvocable<void(const absl::Status& lost)>;
  // What sends items; each sends its state first, on every stream.
  enum class Part { kShard, kSequencer, kMembers };
  static constexpr size_t kParts = 3;

  struct Options {
    std::string part;  // "ps/1", for messages
    std::string copy;  // "ps/0 at host:2222"
    v1::CopyOrigin origin;
    std::function<std::unique_ptr<CopyStream>(CopyStreamHandler&)> dial;
    // Has each part SendState(), soon. Called from the replicator's thread, or Step(), until Stop().
    std::function<void()> capture;
    int64_t most_behind_bytes = 0;  // while a copy catches up, workers wait beyond it
    Duration allocating{};          // what the copy may take for its memory, before it first answers
    // Null: the steady clock, and a thread. Otherwise the owner calls Step().
    const Clock* clock = nullptr;
  };
  explicit Replicator(Options options);
  ~Replicator() override;

  void Start() ABSL_LOCKS_EXCLUDED(mutex_);
  // Does what is to be done now. One thread; after Start(), where there is no thread of its own.
  void Step() ABSL_LOCKS_EXCLUDED(mutex_);
  // What waits is told that the server is stopping, and nothing more is begun. Repeats do nothing.
  void Quit() ABSL_LOCKS_EXCLUDED(mutex_);
  // Likewise, and blocks until the thread, and with it the stream, has ended: on no thread that a stream's
  // end needs.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether items of this part are wanted now: its state has been sent. What is sent while they are not is
  // dropped.
  bool wants(Part part) const ABSL_LOCKS_EXCLUDED(mutex_);
  void SendState(Part part, CopyItem item) ABSL_LOCKS_EXCLUDED(mutex_);
  void Send(Part part, CopyItem item) ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls `then` when the copy has all that was sent before; at once where there is none to wait for.
  void WhenHeld(Held then) ABSL_LOCKS_EXCLUDED(mutex_);

  // The copy has been whole at least once.
  bool was_whole() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The copy has taken our place, or may have: the owner drops the part. Which, for messages; else empty.
  std::string deposed() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class State { kAlone, kCatchingUp, kWhole, kUnsure, kDeposed, kStopped };
  using Calls = std::vector<std::pair<Held, absl::Status>>;

  void OnAnswer(const v1::CopyAnswer& answer) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnClosed(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // One step of a stream's life; false when there is nothing to do yet.
  bool Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  // If it is time to.
  bool Open() ABSL_LOCKS_EXCLUDED(mutex_);
  // The copy begins anew.
  void Agree() ABSL_LOCKS_EXCLUDED(mutex_);
  void BecomeWhole() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the stream; says what its end tells.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  // Logs that the copy is lost, unless the stream has just broken or the server is stopping.
  void SayThatCopyIsLost() ABSL_LOCKS_EXCLUDED(mutex_);
  // What the end of a stream tells: sets the state.
  void Conclude(const absl::Status& end) ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t SendNow(CopyItem item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Its right to take our place is over, and it has had the time to tell us that it has done so.
  bool MayGoOnAlone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Before its process ended, which cannot say so: it had not heard of us for so long.
  bool MayHaveBeenReplaced() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Depose() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The stream has ended, or nothing came on it for too long.
  bool Ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return state_ == State::kDeposed || state_ == State::kStopped;
  }
  // There is something to do.
  void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TimePoint Now() const;
  bool HeldBack() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves what need not wait any more.
  Calls Due() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Make(Calls calls);

  const Options options_;

  // Of who steps.
  enum class Phase { kNone, kAgreeing, kSendingState, kHoldingState, kWhole };
  Phase phase_ = Phase::kNone;
  std::unique_ptr<CopyStream> open_;  // the stream, but in kNone
  uint64_t awaited_ = 0;              // item: the origin, or the last of the state
  TimePoint opened_, next_open_, last_said_;
  net::Backoff backoff_;

  mutable Mutex mutex_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kAlone;
  bool was_whole_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_lost_copy_ ABSL_GUARDED_BY(mutex_) = true;  // since it was whole; at first there is none to lose
  std::string untold_loss_ ABSL_GUARDED_BY(mutex_);    // the warning about it, while it is too early for it
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t wakes_ ABSL_GUARDED_BY(mutex_) = 0;                  // calls of Wake()
  CopyStream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;        // open_, while it is used
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mutex_);  // the stream has ended
  std::array<bool, kParts> sent_state_ ABSL_GUARDED_BY(mutex_){};
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;                                // item sent, over all streams
  uint64_t held_ ABSL_GUARDED_BY(mutex_) = 0;                                // item that the copy has
  std::deque<std::pair<uint64_t, int64_t>> behind_ ABSL_GUARDED_BY(mutex_);  // (item, its bytes), not held
  int64_t behind_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::pair<uint64_t, Held>> waiting_ ABSL_GUARDED_BY(mutex_);  // for this item to be held
  std::string deposed_ ABSL_GUARDED_BY(mutex_);                            // with kDeposed: how we know
  TimePoint last_answer_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<uint64_t, TimePoint>> echoes_
      ABSL_GUARDED_BY(mutex_);  // (item, when it was sent), not held
  // Of Step(): what stood still for kSilent, a paused process say, is awake since it goes on.
  TimePoint last_step_ ABSL_GUARDED_BY(mutex_), awake_since_ ABSL_GUARDED_BY(mutex_);
  // The copy has heard of us since then; and what came between was seen to break then.
  TimePoint heard_ ABSL_GUARDED_BY(mutex_), broken_ ABSL_GUARDED_BY(mutex_);
  TimePoint last_echo_ ABSL_GUARDED_BY(mutex_);
  // CopyAnswer.keeper, of who agreed to keep the copy last, and of who answered last.
  uint64_t keeper_ ABSL_GUARDED_BY(mutex_) = 0, answering_ ABSL_GUARDED_BY(mutex_) = 0;
  Thread thread_;
};

}  // namespace cairn::ps
