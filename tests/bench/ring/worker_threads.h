// The workers of one ring, each in a thread, which run one round together on request.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "common/core/mutex.h"
#include "common/system/thread.h"

namespace cairn::bench {

class WorkerThreads {
 public:
  // body(worker): one round of it. Errors are kept for Round().
  WorkerThreads(int workers, std::function<absl::Status(int)> body) : body_(std::move(body)) {
    for (int worker = 0; worker < workers; ++worker) {
      threads_.emplace_back("bench-worker", [this, worker] { Work(worker); });
    }
  }
  ~WorkerThreads() {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }

  // One round of all; returns when the last has ended.
  absl::Status Round() {
    MutexLock lock(mutex_);
    left_ = static_cast<int>(threads_.size());
    ++round_;
    changed_.NotifyAll();
    while (left_ > 0) changed_.Wait(mutex_);
    return status_;
  }

 private:
  void Work(int worker) {
    int done = 0;
    for (;;) {
      {
        MutexLock lock(mutex_);
        while (round_ == done && !ending_) changed_.Wait(mutex_);
        if (ending_) return;
        done = round_;
      }
      const absl::Status status = body_(worker);
      MutexLock lock(mutex_);
      status_.Update(status);
      if (--left_ == 0) changed_.NotifyAll();
    }
  }

  const std::function<absl::Status(int)> body_;
  Mutex mutex_;
  CondVar changed_;
  int round_ ABSL_GUARDED_BY(mutex_) = 0;
  int left_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<Thread> threads_;  // joined before what they use goes
};

}  // namespace cairn::bench
