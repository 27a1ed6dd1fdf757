// One worker's membership in the ring: forms the ring with the other workers, detects a lost neighbour, and
// forms the ring again.
//
//               right neighbour reached, left neighbour connected, all states received
//   kForming ─────────────────────────────────────────────────────────────────────────► kFormed
//      ▲                                                                                   │
//      └──────────── ring epoch + 1: a link has ended, the left neighbour has been ◄───────┘
//                    silent for a lease, or a neighbour is at a later ring epoch
//
// Ring epochs are numbered (`ring_epoch`). A worker that detects a failure switches to the next number,
// notifies both neighbours with the reason, and closes its links; they do the same, once per number. Each
// stream belongs to one ring epoch, and a worker adopts a higher number of a neighbour. So all workers reach
// the same number, and no message of an older ring epoch is mistaken for a current one.
//
// The member owns the ring epoch. `LeftNeighbour` and `RightNeighbour` are its two ends, `StateExchange` is what
// the workers of a ring epoch agree on.
//
// Must be made before the listener that calls it, and must outlive the listener. Form(), PassState() and
// Leave() are called by one thread, everything else by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/all_reduce.pb.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/cluster/placement.h"
#include "common/net/data_channel/data_endpoint.h"
#include "common/system/ticker.h"
#include "worker/allreduce/agreement.h"
#include "worker/allreduce/left_neighbour.h"
#include "worker/allreduce/right_neighbour.h"
#include "worker/allreduce/state_exchange.h"
#include "worker/peer/chunks.h"
#include "worker/peer/link.h"

namespace cairn::allreduce {

// The end of a wait: its deadline, or a flag that another thread sets, which is noticed within 0.5 s, or within 2 s
// while the right neighbour does not answer. The flag may be null.
struct WaitLimit {
  // `fault`, or CANCELLED if the flag is set and the wait would go on.
  absl::Status Check(const absl::Status& fault) const;

  TimePoint deadline;
  const std::atomic<bool>* stop = nullptr;
};

class Member final : public RingHost {
 public:
  struct Options {
    int worker = 0;                     // position among the workers, the chief first
    std::vector<std::string> names;     // [worker] "worker/1 at host:2222"
    std::string task;                   // "worker/1": this one
    uint64_t cluster_hash = 0;          // 0: not compared
    uint64_t incarnation = 0;           // this process' incarnation
    net::DataEndpoint data_endpoint{};  // the data channel's address of this worker
    v1::Job job;                        // its run_id is not used
    std::vector<net::VariableInfo> variables;
    int64_t size = 0;        // elements of the variables
    int64_t state_size = 0;  // elements of the values and all slots; 0: the worker that passes them says
    Duration lease = std::chrono::seconds(10);  // a left neighbour that is silent for longer is lost
    // Called about every 10 s while this worker waits for others. May be null.
    std::function<void(const std::string&)> say{};
    int64_t most_chunk = kMaxChunkFloats;
  };
  // Null `right`: there is only one worker.
  Member(Options options, std::unique_ptr<RingPeer> right);
  ~Member() override;

  // Forms the ring, and tries again while links break. Calls `mine` for this worker's state at every attempt.
  // UNAVAILABLE at the deadline, naming the workers not reached or not connected, or CANCELLED: another call may join
  // them. FAILED_PRECONDITION if the neighbours' jobs differ; or the reason given to Interrupt() or by a failed worker.
  absl::StatusOr<Agreement> Form(const std::function<v1::RingState()>& mine, const WaitLimit& limit)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // After Form(), if agreement.passes: the source sends its state, and all others receive it. ABORTED if the
  // ring epoch has ended; DEADLINE_EXCEEDED; CANCELLED.
  absl::StatusOr<std::shared_ptr<const AlignedBuffer>> PassState(
      const Agreement& agreement, const std::function<std::shared_ptr<const AlignedBuffer>()>& state,
      const WaitLimit& limit) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends a ring epoch that this worker cannot continue, with ABORTED `why`: all workers form the ring again.
  // Any thread.
  void GiveUp(int64_t ring_epoch, const absl::Status& why) { Break(ring_epoch, why); }

  // Makes every call that waits now or later fail with `reason`. Any thread.
  void Interrupt(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // All workers have finished their last step: links may end from now on.
  void Complete() ABSL_LOCKS_EXCLUDED(mutex_);
  // After Complete(): waits until the neighbours have received everything that they need from this worker.
  // Before Complete(): notifies them with the reason `why`; a reason other than ABORTED ends the job for all
  // workers. Takes at most `limit`.
  void Leave(const absl::Status& why, Duration limit) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status OnGreet(const v1::GreetRequest& request, v1::GreetResponse* response) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<RingHandler> OnStream(std::shared_ptr<RingStream> back) override;

  const std::string& name(int worker) const { return options_.names[static_cast<size_t>(worker)]; }

 private:
  struct Inlet;

  int workers() const { return static_cast<int>(options_.names.size()); }
  int left() const { return (options_.worker + workers() - 1) % workers(); }
  int right() const { return (options_.worker + 1) % workers(); }

  // Ends ring epoch `ring_epoch`; the next one is `next`.
  void BreakTo(int64_t ring_epoch, int64_t next, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void Break(int64_t ring_epoch, const absl::Status& why) { BreakTo(ring_epoch, ring_epoch + 1, why); }
  // Why the ring epoch cannot continue, or cannot be formed; OK while it can.
  absl::Status Fault(int64_t ring_epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::StatusOr<Agreement> FormOnce(int64_t ring_epoch, const v1::RingState& mine, const WaitLimit& limit)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::GreetResponse> GreetRight(int64_t ring_epoch, const WaitLimit& limit)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void AddState(int64_t ring_epoch, const v1::RingState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Calls by the left neighbour.
  absl::Status OnHello(Inlet& inlet, const v1::RingHello& hello) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnLeftFrame(Inlet& inlet, const v1::RingHeader& header, net::Payload payload)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnState(int64_t ring_epoch, const v1::RingState& state) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnValues(int64_t ring_epoch, const v1::StateChunk& chunk, net::Payload payload)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLeftClosed(int64_t ring_epoch, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRightClosed(int64_t ring_epoch, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const v1::GreetRequest greeting_;  // without the ring epoch

  // Synchronises itself. Its lock is taken after mutex_, if both are held.
  RightNeighbour right_;

  mutable Mutex mutex_;
  CondVar changed_;
  int64_t ring_epoch_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);  // why the last ring epoch ended
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);   // not OK: the ring is not formed again
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  // State of the ring epoch.
  LeftNeighbour left_ ABSL_GUARDED_BY(mutex_);
  StateExchange states_ ABSL_GUARDED_BY(mutex_);

  int64_t unformed_epoch_ = 0;     // in which the last Form() failed; used by the forming thread
  TimePoint last_beat_;            // used by the heartbeat thread
  std::unique_ptr<Ticker> beats_;  // null: there is only one worker
};

}  // namespace cairn::allreduce
