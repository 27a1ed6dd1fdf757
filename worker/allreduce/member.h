// One worker's place in the ring: forms it with the others, notices when one is lost, and forms it again.
//
//             right-hand neighbour reached, left-hand one has come, all have told their state
//   kForming ───────────────────────────────────────────────────────────────────────────────► kFormed
//      ▲                                                                                         │
//      └── a link ends, the left is silent for a lease, a neighbour is farther: formation + 1 ◄──┘
//
// Formations are numbered. Who notices a fault goes on to the next number, tells both neighbours why, and
// closes its links; they do the same, once for each number. Streams belong to one formation, and a neighbour
// that says a higher number is followed: so all come to the same number, and nothing of an older one is taken
// for new.
//
// Made before the listener that calls it, and outlives it. One thread forms, passes and leaves; the rest is
// any thread's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/all_reduce.pb.h"
#include "common/core/aligned_buffer.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/core/thread.h"
#include "common/net/direct/address.h"
#include "common/net/placement.h"
#include "worker/allreduce/agreement.h"
#include "worker/allreduce/chunks.h"
#include "worker/allreduce/link.h"
#include "worker/allreduce/ring.h"

namespace cairn::allreduce {

class Member final : public RingHost {
 public:
  struct Options {
    int worker = 0;                  // position among the workers, the chief first
    std::vector<std::string> names;  // [worker] "worker/1 at host:2222"
    std::string task;                // "worker/1": this one
    uint64_t cluster_hash = 0;       // 0: not compared
    uint64_t incarnation = 0;        // of this process
    net::DirectAddress direct{};     // where streams come beside gRPC
    v1::Job job;                     // but for the run_id
    std::vector<net::VariableInfo> variables;
    int64_t size = 0;                           // elements of the variables
    int64_t state_size = 0;                     // of these and all of each slot
    Duration lease = std::chrono::seconds(10);  // a left-hand neighbour that is silent for so long is lost
    // What is said while others are waited for, about every 10 s. May be null.
    std::function<void(const std::string&)> say{};
    int64_t most_chunk = kMostChunkFloats;
  };
  // Null `right`: the only worker.
  Member(Options options, std::unique_ptr<RingPeer> right);
  ~Member() override;

  // Forms the ring, again and again until `deadline` while links break; asks for what this worker brings each
  // time. UNAVAILABLE naming who was not
  // reached or has not come; FAILED_PRECONDITION when the neighbours do not fit; what Interrupt() or a worker
  // that failed said.
  absl::StatusOr<Agreement> Form(const std::function<v1::RingState()>& mine, TimePoint deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // After Form(), where it passes: the source gives its state, the others get it. ABORTED when the formation
  // broke; DEADLINE_EXCEEDED.
  absl::StatusOr<std::shared_ptr<const AlignedBuffer>> PassState(
      const Agreement& agreement, const std::function<std::shared_ptr<const AlignedBuffer>()>& state,
      TimePoint deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends a formation that this worker cannot go on with: all form the ring anew. ABORTED `why`. Any thread.
  void GiveUp(int64_t formation, const absl::Status& why) { Break(formation, why); }

  // Ends what waits, and what will. Any thread.
  void Interrupt(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // All have done their last step: links may end from now on.
  void Complete() ABSL_LOCKS_EXCLUDED(mutex_);
  // After Complete(): waits until the neighbours have what they need of this worker. Otherwise tells them why
  // it goes; what is not ABORTED is the end for all. At most for `limit`.
  void Leave(const absl::Status& why, Duration limit) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status OnGreet(const v1::GreetRequest& request, v1::GreetResponse* response) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<RingHandler> OnStream(std::shared_ptr<RingStream> back) override;

  const std::string& name(int worker) const { return options_.names[static_cast<size_t>(worker)]; }

 private:
  struct Inlet;
  struct Outlet;

  int workers() const { return static_cast<int>(options_.names.size()); }
  int left() const { return (options_.worker + workers() - 1) % workers(); }
  int right() const { return (options_.worker + 1) % workers(); }
  std::string InStep() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The formation is over; the next one is `next`.
  void BreakTo(int64_t formation, int64_t next, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void Break(int64_t formation, const absl::Status& why) { BreakTo(formation, formation + 1, why); }
  // Why forming, or what was formed, cannot go on; OK while it can.
  absl::Status Fault(int64_t formation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendRight(int64_t formation, const v1::RingHeader& header, net::FloatSpans payload,
                 const std::shared_ptr<const void>& owner) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<Agreement> FormOnce(int64_t formation, const v1::RingState& mine, TimePoint deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::GreetResponse> GreetRight(int64_t formation, TimePoint deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The old one tells why, where it still can, and ends.
  void Retire(std::shared_ptr<Outlet> outlet) ABSL_LOCKS_EXCLUDED(mutex_);
  // When nobody else has it any more.
  static void Drop(std::shared_ptr<Outlet> outlet);
  void AddState(int64_t formation, const v1::RingState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(Agreement agreement, int64_t formation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  // The left-hand neighbour's.
  // Another process greets as the left-hand neighbour, whose stream is open. FAILED_PRECONDITION where that
  // one lives, UNAVAILABLE until that is clear.
  absl::Status CheckLeftIsGone(const v1::GreetRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OnHello(Inlet& inlet, const v1::RingHello& hello) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnLeftFrame(Inlet& inlet, const v1::RingHeader& header, net::Payload payload)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnState(int64_t formation, const v1::RingState& state) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnValues(int64_t formation, const v1::StateChunk& chunk, net::Payload payload)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLeftClosed(int64_t formation, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRightClosed(Outlet& outlet, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRightBye() ABSL_LOCKS_EXCLUDED(mutex_);
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const std::unique_ptr<RingPeer> peer_;
  const v1::Process process_;
  const std::vector<int64_t> variable_begins_;
  const ChunkPlan plan_;

  mutable Mutex mutex_;
  CondVar changed_;
  int64_t formation_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);  // why the last formation ended
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);   // no other will be formed
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the formation.
  std::shared_ptr<RingStream> left_ ABSL_GUARDED_BY(mutex_);  // null: it has not come
  uint64_t left_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::Process left_process_ ABSL_GUARDED_BY(mutex_);  // as the last greeting that was answered has it
  // Another process that says it is the left-hand neighbour, while the stream of the one before is open: its
  // incarnation, and when it first asked.
  uint64_t contender_ ABSL_GUARDED_BY(mutex_) = 0;
  TimePoint contended_at_ ABSL_GUARDED_BY(mutex_);
  TimePoint left_heard_ ABSL_GUARDED_BY(mutex_);
  bool left_bye_ ABSL_GUARDED_BY(mutex_) = false;
  bool right_bye_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Outlet> right_ ABSL_GUARDED_BY(mutex_);        // null: it is not open
  std::vector<v1::RingHeader> waiting_ ABSL_GUARDED_BY(mutex_);  // to go there when it is
  std::vector<std::optional<v1::RingState>> states_ ABSL_GUARDED_BY(mutex_);
  std::optional<Agreement> agreed_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<AlignedBuffer> passed_ ABSL_GUARDED_BY(mutex_);  // the source's state
  int64_t passed_size_ ABSL_GUARDED_BY(mutex_) = 0;                // elements that are here

  std::shared_ptr<Outlet> outlet_;  // the forming thread's: right_, now or of the formation before
  Thread beats_;
};

}  // namespace cairn::allreduce
