// Keeps the first error of several threads for a later query.
#pragma once

#include <atomic>

#include "absl/status/status.h"
#include "common/core/mutex.h"

namespace cairn::data {

// Safe to use from any thread.
class FirstError {
 public:
  void Set(const absl::Status& status) {
    if (status.ok()) return;
    MutexLock lock(mutex_);
    if (!status_.ok()) return;
    status_ = status;
    failed_.store(true, std::memory_order_release);
  }
  absl::Status status() const {
    if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  std::atomic<bool> failed_ = false;
  mutable Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::data
