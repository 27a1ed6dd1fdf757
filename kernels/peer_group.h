// A device that sums data with devices of other processes: GPUs over NCCL (kernels/cuda/nccl_peers). Devices
// of one process form a kernels::DeviceGroup.
//
// Created after the device and destroyed before it. All calls come from the device's thread. A sum has its
// own streams, so it runs concurrently with the device's computations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/clock.h"

namespace cairn::kernels {

// A member of a group. A failure of a member or link ends the group for each member as soon as that member
// notices it; the surviving members then form another group. When the object has been destroyed, no sum is in
// progress any more.
class PeerGroup {
 public:
  // host[i] = the sum over all members of weight * part[i], for i in [0, count), bit for bit the same for all
  // members.
  struct Sum {
    float* part = nullptr;  // the part of this member, in its device's memory; undefined after the sum
    float weight = 1;       // the weight of this member's part
    int64_t count = 0;      // the same for all members; at least 1
    float* host = nullptr;  // best pinned: otherwise the copy is only made in Await()
  };

  virtual ~PeerGroup() = default;

  // Begins a sum in `slot`, which is occupied until Await() has returned. Slots are numbered from 0 and
  // reused. All members begin the same sums in the same order. The host must have waited for the work that
  // writes the part; the memory must stay untouched until Await() has returned. Does not wait for the sum,
  // but the first sums may wait until the other members begin them, at most until `deadline`. Errors are
  // returned by Await().
  virtual void Begin(size_t slot, const Sum& sum, TimePoint deadline) = 0;
  // Blocks until the sum of `slot`, whose Begin() has returned, is on the host. INTERNAL names the call that
  // failed; DEADLINE_EXCEEDED; or the status that Seat::look returned. After any error the group is unusable:
  // every later sum ends with the same status.
  virtual absl::Status Await(size_t slot, TimePoint deadline) = 0;
};

class PeerDevice {
 public:
  struct Seat {
    std::string group;  // what DrawGroup() returned to one of the members
    int member = 0, members = 2;
    // Called repeatedly while the group waits. A status other than OK ends the wait, and the group.
    std::function<absl::Status()> look;
  };

  virtual ~PeerDevice() = default;
  virtual const std::string& library() const = 0;  // "NCCL 2.28.9"; must be the same for all members
  virtual const std::string& id() const = 0;       // unique; a group contains each device once
  // Draws the identity of a new group, which all its members pass to Join().
  virtual absl::StatusOr<std::string> DrawGroup() = 0;
  // Blocks until all members have joined and have tested the group with a sum of known numbers. Fails as
  // PeerGroup::Await() does; the time limit is a minute.
  virtual absl::StatusOr<std::unique_ptr<PeerGroup>> Join(Seat seat) = 0;
};

}  // namespace cairn::kernels
