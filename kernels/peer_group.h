// A device that adds up, with devices of other processes, what lies in the memory of each: GPUs by NCCL
// (kernels/cuda/nccl_peers). Those of one process are a kernels::DeviceGroup.
//
// Made when the device is there, goes before it. All calls come from one thread, that of the device. A sum
// has streams of its own: it goes on beside what the device computes.
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

// A place in one group. A fault, of a member or of a link, is the end of a group, for each member when it
// finds out; what is left then makes another one. When the group goes away nothing is under way any more.
class PeerGroup {
 public:
  // host[i] = the sum over all members of weight * part[i], for i in [0, count): the same bits for all.
  struct Sum {
    float* part = nullptr;  // this member's, in its device's memory; what is there afterwards is not defined
    float weight = 1;       // this member's
    int64_t count = 0;      // the same of all members; at least 1
    float* host = nullptr;  // pinned, or it is copied when it is awaited, and no sooner
  };

  virtual ~PeerGroup() = default;

  // Begins a sum, which `slot` stands for until it has been awaited; slots are counted from 0, and one is
  // used again and again. All members begin the same sums in the same order. What writes the part is done:
  // the host has waited for it; the memory stays untouched until the sum has been awaited. Does not wait for
  // the sum, but, of the first ones, perhaps for the others to begin it: until `deadline`. Errors are
  // Await()'s.
  virtual void Begin(size_t slot, const Sum& sum, TimePoint deadline) = 0;
  // Blocks until the sum of `slot`, whose Begin() has returned, is on the host. INTERNAL names the call that
  // failed; DEADLINE_EXCEEDED; or what Seat::look said. After any of them the group is of no use: every later
  // sum ends with the same status.
  virtual absl::Status Await(size_t slot, TimePoint deadline) = 0;
};

class PeerDevice {
 public:
  struct Seat {
    std::string group;  // DrawGroup()'s, of one member
    int member = 0, members = 2;
    // Asked again and again while the group waits: a status that is not OK ends the wait, and the group.
    std::function<absl::Status()> look;
  };

  virtual ~PeerDevice() = default;
  virtual const std::string& library() const = 0;  // "NCCL 2.28.9": one group's members all have the same
  virtual const std::string& id() const = 0;       // no other device's: a group takes each once
  // Stands for a group that there is not yet, for all who are to be in it.
  virtual absl::StatusOr<std::string> DrawGroup() = 0;
  // Blocks until all members have joined and have added up a few numbers on trial. As PeerGroup::Await(); the
  // limit is a minute.
  virtual absl::StatusOr<std::unique_ptr<PeerGroup>> Join(Seat seat) = 0;
};

}  // namespace cairn::kernels
