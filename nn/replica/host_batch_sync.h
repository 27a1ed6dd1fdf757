// The sums over devices of BatchSync, computed by the host. Owned by a replica on several devices; any thread.
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
  explicit HostBatchSync(size_t devices);

  BatchSync* of(size_t device) { return devices_[device].get(); }
  // A step begins, in which device i has the examples [begins[i], begins[i + 1]), at least one; later devices have
  // none. No device may be in a step.
  void Begin(absl::Span<const int64_t> begins) ABSL_LOCKS_EXCLUDED(mutex_);
  // A device has failed: ends the other devices' sums of this step.
  void Abort() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Device;
  absl::Status Sum(size_t device, absl::Span<double> values) ABSL_LOCKS_EXCLUDED(mutex_);

  std::vector<std::unique_ptr<BatchSync>> devices_;
  Mutex mutex_;
  CondVar summed_;
  std::vector<double> shares_ ABSL_GUARDED_BY(mutex_);              // [device of the step]
  std::vector<std::vector<double>> parts_ ABSL_GUARDED_BY(mutex_);  // [device of the step] of the current sum
  size_t arrived_ ABSL_GUARDED_BY(mutex_) = 0;                      // how many of them have come
  std::vector<double> sum_ ABSL_GUARDED_BY(mutex_);                 // the last sum
  int64_t sums_ ABSL_GUARDED_BY(mutex_) = 0;                        // how many have been completed
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn::nn
