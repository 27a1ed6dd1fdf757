// Variables whose gradient is final, handed from the threads of several devices to the one that waits for
// them. One for each call of a replica; made and awaited by its thread, the rest from any.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/core/mutex.h"

namespace cairn::nn {

class Announcer {
 public:
  // So many threads will say Done().
  explicit Announcer(size_t threads) : running_(threads) {}

  void Announce(int variable) {
    MutexLock lock(mutex_);
    ready_.push_back(variable);
    changed_.NotifyOne();
  }
  void Done() {
    MutexLock lock(mutex_);
    --running_;
    changed_.NotifyOne();  // under the lock: who waits may be gone as soon as it is free
  }

  // Tells of every variable as it comes, outside the lock; returns when all threads are done. There is no
  // limit to that: they compute, and wait for each other alone.
  void Await(absl::FunctionRef<void(int variable)> on_gradient) {
    for (size_t told = 0;;) {
      int variable = 0;
      {
        MutexLock lock(mutex_);
        while (told == ready_.size() && running_ > 0) changed_.Wait(mutex_);
        if (told == ready_.size()) return;
        variable = ready_[told++];
      }
      on_gradient(variable);
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<int> ready_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::nn
