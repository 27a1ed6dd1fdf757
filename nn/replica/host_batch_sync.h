// BatchSync for the devices of one replica: the host computes the means over devices and, if the batch is divided among
// workers too, has the last device's thread obtain the mean over workers. There is no timeout for devices, because they
// are our own. Owned by a replica on several devices; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/mutex.h"
#include "nn/layer/batch_sync.h"

namespace cairn::nn {

class HostBatchSync {
 public:
  // `workers`: the other workers of each step; null: there are none. Must outlive this object.
  explicit HostBatchSync(size_t devices, BatchSync* workers = nullptr);

  BatchSync* of(size_t device) { return devices_[device].get(); }
  // A step begins, in which device i has the examples [begins[i], begins[i + 1]), at least one; later devices have
  // none. No device may be in a step.
  void Begin(absl::Span<const int64_t> begins) ABSL_LOCKS_EXCLUDED(mutex_);
  // A device has failed: ends the other devices' waits in this step.
  void Abort() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Device;
  absl::Status Mean(size_t device, absl::Span<double> values) ABSL_LOCKS_EXCLUDED(mutex_);
  // All devices have given their parts.
  std::vector<double> MeanOverDevices() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  BatchSync* const workers_;
  std::vector<std::unique_ptr<BatchSync>> devices_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<double> shares_ ABSL_GUARDED_BY(mutex_);  // [device of the step] of the examples
  std::vector<std::vector<double>> parts_
      ABSL_GUARDED_BY(mutex_);                        // [device of the step] of the current mean
  size_t arrived_ ABSL_GUARDED_BY(mutex_) = 0;        // how many of them have come
  std::vector<double> mean_ ABSL_GUARDED_BY(mutex_);  // the last mean
  int64_t means_ ABSL_GUARDED_BY(mutex_) = 0;         // how many have been completed
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);      // of the step
};

}  // namespace cairn::nn
