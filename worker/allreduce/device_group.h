// This worker's device in the group of the workers' devices that sum gradients: offers the device, joins the
// group of a ring epoch, sums the gradients of a step, and decides what a fault means.
//
// A fault of a sum is handled like a lost worker: the ring epoch ends, and the step is repeated. If no worker
// is lost, the worker whose device failed stops offering its device, and all use the ring from then on.
//
// Owned by RingExchange; used by the thread that makes the steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cairn/v1/all_reduce.pb.h"
#include "common/core/clock.h"
#include "kernels/peer_group.h"
#include "worker/allreduce/agreement.h"
#include "worker/allreduce/device_sum.h"
#include "worker/allreduce/member.h"
#include "worker/allreduce/ring.h"

namespace cairn::allreduce {

class DeviceGroup {
 public:
  struct Options {
    int worker = 0;
    int workers = 1;
    kernels::PeerDevice* device = nullptr;  // may be null; must outlive this object
    std::vector<int64_t> variable_begins;   // DeviceSum
    Duration step_timeout;                  // the limit of each sum
    Duration links_notice;                  // RingExchange::Options
  };
  // `member` must outlive this object.
  DeviceGroup(Member& member, Options options) : member_(member), options_(std::move(options)) {}

  // Adds the device to the state with which this worker forms a ring, unless there is none or it has failed.
  void Offer(v1::RingState& mine);
  // Joins the group of devices, if the agreement has one. ABORTED if the ring epoch has ended.
  absl::Status Join(const Agreement& agreement);
  // Ends the membership, which may write to a step's mean until then.
  void Leave() { sum_ = nullptr; }
  // Whether the devices sum gradients, since the last Join().
  bool sums() const { return sum_ != nullptr; }
  // Logs how gradients are summed, if that has changed.
  void LogTransport(const Agreement& agreement);

  // The sum of one step, if sums(): as in DeviceSum.
  void Begin(absl::Span<float> gradients, absl::Span<float> mean);
  void Announce(int variable);
  // After the ring's step: waits for the mean, and sets step.mean. ABORTED after a fault.
  absl::Status Await(Ring::Step& step);

 private:
  // After a failed sum of the devices: returns why the ring epoch is over. Either a worker is lost, or this
  // worker ends the ring epoch and stops offering its device.
  absl::Status AfterFault(const absl::Status& fault);

  Member& member_;
  const Options options_;
  std::shared_ptr<Ring> ring_;      // of the last Join()
  int64_t ring_epoch_ = 0;          // its ring epoch
  std::unique_ptr<DeviceSum> sum_;  // null: sums around the ring
  absl::Span<float> mean_;          // the current step's mean
  bool renounced_ = false;          // the device has failed, and is not offered any more
  std::string told_;                // the last log message of LogTransport()
};

}  // namespace cairn::allreduce
