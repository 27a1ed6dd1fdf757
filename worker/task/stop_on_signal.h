// Watches for SIGINT, SIGTERM and SIGHUP: the first signal makes training stop cleanly, the second one ends
// the process at once. Created by WorkerTask; any thread.
#pragma once

#include <atomic>

#include "common/core/mutex.h"
#include "common/system/signals.h"
#include "common/system/thread.h"
#include "worker/training/trainer.h"

namespace cairn::worker {

class StopOnSignal {
 public:
  explicit StopOnSignal(SignalQueue& signals);
  ~StopOnSignal();

  // The signal received, or 0. SIGHUP (the terminal was closed) counts as SIGTERM.
  int received() const { return received_; }
  // From now on a signal stops `trainer`. If a signal has already arrived, the trainer is stopped at once.
  // Must be set to null before the trainer is destroyed.
  void SetTrainer(Trainer* trainer) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Watch(SignalQueue& signals) ABSL_LOCKS_EXCLUDED(mutex_);

  std::atomic<bool> done_{false};
  std::atomic<int> received_{0};
  Mutex mutex_;
  Trainer* trainer_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Thread thread_;
};

}  // namespace cairn::worker
