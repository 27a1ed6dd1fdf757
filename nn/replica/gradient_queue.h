// A queue of variables, and inputs as Node::OfModelInput(), whose gradients are final. Each call of a replica has its
// own queue. The thread that called the replica constructs the queue and waits for its entries in Await(). The
// devices' threads add entries by Announce(), and each of them ends with Done().
#pragma once

#include <cstddef>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/core/mutex.h"

namespace cairn::nn {

class GradientQueue {
 public:
  // `threads`: the number of threads that will call Done().
  explicit GradientQueue(size_t threads) : running_(threads) {}

  void Announce(int variable) {
    MutexLock lock(mutex_);
    ready_.push_back(variable);
    changed_.NotifyOne();
  }
  void Done() {
    MutexLock lock(mutex_);
    --running_;
    // Notify while holding the lock: the waiting thread may destroy this object as soon as the lock is free.
    changed_.NotifyOne();
  }

  // Calls `on_gradient` for each variable as it arrives, outside the lock. Returns when all threads are done.
  // There is no timeout: the threads only compute, and wait only for each other.
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
