// The ends of a worker's links, as a transport calls them, with the ring epoch to which each belongs. Only
// for member*.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "worker/allreduce/member.h"

namespace cairn::allreduce {

// The stream to the right neighbour.
struct Member::Outlet final : RingHandler {
  Outlet(Member& member_in, int64_t ring_epoch_in) : member(member_in), ring_epoch(ring_epoch_in) {}

  absl::Status OnFrame(const v1::RingHeader& header, net::Payload) override {
    if (!header.has_bye())
      return absl::InvalidArgumentError("ring: the worker that accepted a stream may only send Bye on it");
    member.OnRightBye();
    return absl::OkStatus();
  }
  void OnClosed(const absl::Status& status) override { member.OnRightClosed(*this, status); }

  Member& member;
  const int64_t ring_epoch;
  bool closed = false;                 // guarded by the member's mutex_
  std::unique_ptr<RingStream> stream;  // ends before the members that it calls
};

// A stream from the left neighbour.
struct Member::Inlet final : RingHandler {
  Inlet(Member& member_in, std::shared_ptr<RingStream> back_in)
      : back(std::move(back_in)), member(member_in) {}

  absl::Status OnFrame(const v1::RingHeader& header, net::Payload payload) override {
    return member.OnLeftFrame(*this, header, payload);
  }
  void OnClosed(const absl::Status& status) override { member.OnLeftClosed(ring_epoch, status); }

  const std::shared_ptr<RingStream> back;
  Member& member;
  int64_t ring_epoch = 0;  // 0: no Hello received. Used by threads of the transport
};

}  // namespace cairn::allreduce
