// The update of a synchronous round, made piece by piece while its gradients still arrive, and sent to its
// workers while they still send: both directions of a link are busy at once.
//
// It is a guess: that the workers of the last update, from the same version on, make the next one too. Where
// the log then says otherwise, what was made is dropped, nobody has seen a version of it, and the update is
// made as ever. Where it says so, the update is there, to the bit as it would have been.
//
//   Expect ─► { Begin, Arrived..., }* ─► Take ─► published      the executing thread's: Expect, Take, Drop
//                        │          └─► Drop                    streams' threads: Begin, Arrived, Abandon
//                        └ a piece that all have sent: made there and then, and sent; by the crew
//                          if it has room for one more, while the thread that brought it goes on receiving
//
// What is written early lies beside the current version: new values, and slots of their own.
//
// Thread-safe. Between Expect() and the next Take() or Drop() nobody else may write to the store.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/core/aligned_buffer.h"
#include "common/core/crew.h"
#include "common/core/mutex.h"
#include "common/core/trace.h"
#include "common/net/ahead.h"
#include "common/net/direct/allowance.h"
#include "ps/held_elements.h"
#include "ps/policy/policy.h"
#include "ps/round_pace.h"
#include "ps/variable_store.h"

namespace cairn::ps {

class UpdateAhead {
 public:
  // Takes elements [begin, end) of the values to their worker; false when there is no room for that. Any
  // thread; must not block.
  using SendPiece =
      std::function<bool(const std::shared_ptr<const AlignedBuffer>& values, int64_t begin, int64_t end)>;

  // Lets a worker send so many more bytes of its gradient, or, with kNoLimit, all of it. They are float32's:
  // where it travels in fewer the lead is as much longer. Any thread; must not block.
  using Allow = std::function<void(uint64_t bytes)>;
  static constexpr uint64_t kNoLimit = net::Allowance::kNoLimit;

  // `store` has an optimizer that takes no norms. `crew`, which may be null, outlives it. `trace`, which may
  // be null, hears of the pieces, as parts of what is received.
  explicit UpdateAhead(VariableStore& store, Crew* crew = nullptr, TraceRecorder* trace = nullptr);
  // When no piece is being made any more.
  ~UpdateAhead();

  // --- Streams' threads ---

  // A push has begun. True: this wants to hear of its elements, and `send` may be called until the push is
  // decided or abandoned. `allow`, if it is not null, is called now, and perhaps later: the workers of a
  // round are kept in step (round_pace.h).
  bool Begin(const Gradient& gradient, SendPiece send, Allow allow) ABSL_LOCKS_EXCLUDED(mutex_);
  // Elements [begin, end) of it, for the first time, are in `data`, with all that arrived before.
  void Arrived(const PushKey& key, const HeldElements& data, int64_t begin, int64_t end)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // It will not be complete.
  void Abandon(const PushKey& key) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- The executing thread ---

  // The update that comes next is guessed to be by the workers of these, from the current version.
  void Expect(absl::Span<const Gradient> last, bool last_update) ABSL_LOCKS_EXCLUDED(mutex_);
  // Publishes the update if it is what was guessed: by these, of these data, in their order. All of it has
  // then been sent to those who take part.
  bool Take(absl::Span<const Gradient> contributors, absl::Span<const HeldElements> data, bool last_update)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The store is about to change otherwise.
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr int64_t kPiece = net::kPieceAhead;

  // What of the round is here from one worker.
  struct Member {
    int worker = 0;
    uint64_t incarnation = 0;
    std::optional<Gradient> gradient{};
    SendPiece send{};
    Allow allow{};
    HeldElements data{};
    std::vector<int64_t> missing{};  // [piece] elements
  };
  struct Round {
    int64_t base_version = 0;
    bool last_update = false;
    bool spoilt = false;  // it cannot be as guessed any more
    std::vector<Member> members{};
    RoundPace pace;
    std::vector<size_t> waits_for{};  // [piece] members
    size_t made = 0;                  // pieces
  };

  // What workers are to be told when the lock is free.
  using Told = std::vector<std::pair<Allow, uint64_t>>;
  static void Tell(const Told& told);

  Member* Find(const PushKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // So many elements more of a member's are here: who may go on.
  Told Advance(const Member& member, int64_t elements) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It cannot be as guessed any more: nobody waits for anybody.
  Told Spoil() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes pieces and sends them, neighbours together; those that `worker` was the last to send, in their
  // order. Ends what making_ counts.
  void Make(absl::Span<const int64_t> pieces, int worker) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the round when nobody is at work on it.
  std::optional<Round> Close() ABSL_LOCKS_EXCLUDED(mutex_);

  VariableStore& store_;
  Crew* const crew_;
  TraceRecorder* const trace_;
  const int64_t num_pieces_;

  Mutex mutex_;
  CondVar idle_;
  std::optional<Round> round_ ABSL_GUARDED_BY(mutex_);
  int making_ ABSL_GUARDED_BY(mutex_) = 0;  // calls of Make() under way, or to come
};

}  // namespace cairn::ps
