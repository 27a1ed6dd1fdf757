// The left neighbour as a member sees it: its stream in the current ring epoch, and the signs that the process
// at the other end is alive.
//
// Owned by a Member and guarded by its lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "cairn/v1/all_reduce.pb.h"
#include "common/core/clock.h"
#include "worker/peer/link.h"

namespace cairn::allreduce {

class LeftNeighbour {
 public:
  // A neighbour that is silent for longer than `lease` is lost.
  LeftNeighbour(std::string name, Duration lease) : name_(std::move(name)), lease_(lease) {}

  bool connected() const { return stream_ != nullptr; }
  // Whether a handshake is by another process than the one that is connected.
  bool IsRestart(const v1::GreetRequest& request) const {
    return connected() && incarnation_ != request.incarnation();
  }
  // For such a handshake. FAILED_PRECONDITION if the connected process is alive, UNAVAILABLE until this worker
  // knows whether it is alive.
  absl::Status CheckIsGone(const v1::GreetRequest& request, TimePoint now);
  // A handshake of this process has been answered.
  void SetProcess(const v1::Process& process) { process_ = process; }

  void Connect(std::shared_ptr<RingStream> stream, uint64_t incarnation, TimePoint now);
  // The ring epoch has ended. Returns the stream; null if none was connected.
  std::shared_ptr<RingStream> Disconnect();

  void Hear(TimePoint now) { heard_ = now; }
  // Whether the neighbour is connected, has not said Bye, and has been silent for a lease.
  bool IsSilent(TimePoint now) const { return connected() && !bye_ && now - heard_ > lease_; }
  // The neighbour sends nothing more in this ring epoch.
  void SetBye() { bye_ = true; }
  bool bye() const { return bye_; }

 private:
  const std::string name_;  // "worker/1 at host:2222"
  const Duration lease_;
  std::shared_ptr<RingStream> stream_;  // null: not connected
  uint64_t incarnation_ = 0;
  v1::Process process_;  // the process that sent the last answered handshake
  // Another process that claims to be the left neighbour while the first one's stream is open: its
  // incarnation, and the time of its first handshake.
  uint64_t contender_ = 0;
  TimePoint contended_at_;
  TimePoint heard_;
  bool bye_ = false;
};

}  // namespace cairn::allreduce
