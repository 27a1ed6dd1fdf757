// A one-time event between threads. Like absl::Notification, which ThreadSanitizer does not understand.
#pragma once

#include <chrono>

#include "common/core/mutex.h"

namespace cairn::test {

class Gate {
 public:
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  // False: the gate did not open in time.
  bool Wait(std::chrono::seconds limit = std::chrono::seconds(30)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    MutexLock lock(mutex_);
    while (!open_ && changed_.WaitUntil(mutex_, deadline)) {
    }
    return open_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn::test
