// The right neighbour as a member sees it: the stream to it, one for each ring epoch, and the headers that wait
// until the stream is open.
//
//   not connected ──Connect──► connected, Hello sent ──Open──► open: frames are sent at once
//         ▲                          │                          │
//         └────────── Retire ────────┴───────── BeginEpoch ─────┘
//
// Owned by a Member. Connect(), Open(), Retire() and Close() are called by the thread that forms the ring,
// everything else by any thread. Callbacks run outside the lock, which is taken after the member's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/all_reduce.pb.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/wire/frame.h"
#include "worker/peer/link.h"

namespace cairn::allreduce {

class RightNeighbour {
 public:
  struct Callbacks {
    std::function<void(int64_t ring_epoch, const absl::Status& why)> on_closed;
    std::function<void()> on_bye;
  };
  // Null `peer`: there is only one worker, and nothing is connected.
  RightNeighbour(std::unique_ptr<RingPeer> peer, Callbacks callbacks);
  ~RightNeighbour();

  bool exists() const { return peer_ != nullptr; }
  RingPeer& peer() { return *peer_; }

  // Opens a stream to the neighbour that sent this answer. Nothing else is sent before Open().
  void Connect(const v1::GreetResponse& greeted, const v1::RingHello& hello) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends this worker's state, then the headers that wait, and from now on every frame.
  void Open(const v1::RingState& state) ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives the stream of an ended ring epoch a moment to pass on the reason for its end, then destroys it.
  void Retire() ABSL_LOCKS_EXCLUDED(mutex_);
  // Destroys the stream when no other thread uses it.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  bool connected() const { return outlet_ != nullptr; }
  // Whether the connected stream has ended.
  bool closed() const ABSL_LOCKS_EXCLUDED(mutex_);

  // From now on, frames of `ring_epoch` are sent. Returns the open stream of the previous one, or null.
  std::shared_ptr<RingStream> BeginEpoch(int64_t ring_epoch) ABSL_LOCKS_EXCLUDED(mutex_);
  // The open stream, or null. The caller must release it soon: Close() waits for that.
  std::shared_ptr<RingStream> stream() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends a frame as soon as the stream is open; does nothing if the ring epoch has ended. A frame with a
  // payload may only be sent while the stream is open.
  void Send(int64_t ring_epoch, const v1::RingHeader& header, net::FloatSpans payload,
            const std::shared_ptr<const void>& owner) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends the values of the source, in chunks.
  void SendValues(int64_t ring_epoch, const std::shared_ptr<const AlignedBuffer>& values)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the neighbour has received everything of this ring epoch.
  bool bye() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Outlet;

  const std::unique_ptr<RingPeer> peer_;
  const Callbacks callbacks_;
  std::shared_ptr<Outlet> outlet_;  // used by the forming thread: open_, or a stream that is not open

  mutable Mutex mutex_;
  CondVar changed_;
  int64_t ring_epoch_ ABSL_GUARDED_BY(mutex_) = 1;
  std::shared_ptr<Outlet> open_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::RingHeader> waiting_ ABSL_GUARDED_BY(mutex_);
  bool bye_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn::allreduce
