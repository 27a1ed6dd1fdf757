#include "worker/allreduce/right_neighbour.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common/core/clock.h"
#include "worker/peer/chunks.h"

namespace cairn::allreduce {
namespace {

// How long a neighbour has to receive the reason why a ring epoch is over.
constexpr auto kFarewellLimit = std::chrono::seconds(1);

}  // namespace

struct RightNeighbour::Outlet final : RingHandler {
  Outlet(RightNeighbour& neighbour_in, int64_t ring_epoch_in)
      : neighbour(neighbour_in), ring_epoch(ring_epoch_in) {}

  absl::Status OnFrame(const v1::RingHeader& header, net::Payload) override {
    if (!header.has_bye())
      return absl::InvalidArgumentError("ring: the worker that accepted a stream may only send Bye on it");
    {
      MutexLock lock(neighbour.mutex_);
      neighbour.bye_ = true;
    }
    neighbour.callbacks_.on_bye();
    return absl::OkStatus();
  }
  void OnClosed(const absl::Status& status) override {
    {
      MutexLock lock(neighbour.mutex_);
      closed = true;
      neighbour.changed_.NotifyAll();
    }
    neighbour.callbacks_.on_closed(ring_epoch, status);
  }

  RightNeighbour& neighbour;
  const int64_t ring_epoch;
  bool closed = false;                 // guarded by the neighbour's mutex_
  std::unique_ptr<RingStream> stream;  // ends before the members that it calls
};

RightNeighbour::RightNeighbour(std::unique_ptr<RingPeer> peer, Callbacks callbacks)
    : peer_(std::move(peer)), callbacks_(std::move(callbacks)) {}

RightNeighbour::~RightNeighbour() {
  Close();
}

void RightNeighbour::Connect(const v1::GreetResponse& greeted, const v1::RingHello& hello) {
  outlet_ = std::make_shared<Outlet>(*this, hello.ring_epoch());
  outlet_->stream = peer_->Open(greeted, *outlet_);
  v1::RingHeader header;
  *header.mutable_hello() = hello;
  outlet_->stream->Send(header, {}, nullptr);
}

void RightNeighbour::Open(const v1::RingState& state) {
  v1::RingHeader header;
  *header.mutable_state() = state;
  MutexLock lock(mutex_);
  outlet_->stream->Send(header, {}, nullptr);
  for (const v1::RingHeader& waiting : waiting_) outlet_->stream->Send(waiting, {}, nullptr);
  waiting_.clear();
  open_ = outlet_;
}

void RightNeighbour::Retire() {
  if (outlet_ == nullptr) return;
  const TimePoint limit = SteadyNow() + kFarewellLimit;
  {
    MutexLock lock(mutex_);
    while (!outlet_->closed && SteadyNow() < limit) changed_.WaitUntil(mutex_, limit);
  }
  Close();
}

void RightNeighbour::Close() {
  {
    MutexLock lock(mutex_);
    open_ = nullptr;
  }
  // Other threads hold the stream only during a Send(), which does not block. The stream's own thread may be
  // one of them, and must not be the thread that waits for the end of the stream.
  while (outlet_.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  outlet_ = nullptr;
}

bool RightNeighbour::closed() const {
  MutexLock lock(mutex_);
  return outlet_->closed;
}

std::shared_ptr<RingStream> RightNeighbour::BeginEpoch(int64_t ring_epoch) {
  MutexLock lock(mutex_);
  ring_epoch_ = ring_epoch;
  waiting_.clear();
  bye_ = false;
  const std::shared_ptr<Outlet> open = std::exchange(open_, nullptr);
  return open == nullptr ? nullptr : std::shared_ptr<RingStream>(open, open->stream.get());
}

std::shared_ptr<RingStream> RightNeighbour::stream() const {
  MutexLock lock(mutex_);
  return open_ == nullptr ? nullptr : std::shared_ptr<RingStream>(open_, open_->stream.get());
}

void RightNeighbour::Send(int64_t ring_epoch, const v1::RingHeader& header, net::FloatSpans payload,
                          const std::shared_ptr<const void>& owner) {
  std::shared_ptr<Outlet> open;
  {
    MutexLock lock(mutex_);
    if (ring_epoch != ring_epoch_) return;
    if (open_ == nullptr) {
      // Only headers can wait: values are sent after all states have arrived, when the stream is open.
      waiting_.push_back(header);
      return;
    }
    open = open_;
  }
  open->stream->Send(header, payload, owner);
}

void RightNeighbour::SendValues(int64_t ring_epoch, const std::shared_ptr<const AlignedBuffer>& values) {
  for (int64_t offset = 0; offset < values->size(); offset += kMaxChunkFloats) {
    v1::RingHeader header;
    header.mutable_values()->set_offset(offset);
    header.mutable_values()->set_total(values->size());
    const int64_t count = std::min(kMaxChunkFloats, values->size() - offset);
    const absl::Span<const float> chunk(values->data() + offset, static_cast<size_t>(count));
    Send(ring_epoch, header, {&chunk, 1}, values);
  }
}

bool RightNeighbour::bye() const {
  MutexLock lock(mutex_);
  return bye_;
}

}  // namespace cairn::allreduce
