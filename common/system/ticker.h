// Calls a function periodically, on its own thread.
#pragma once

#include <functional>
#include <string>

#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/system/thread.h"

namespace cairn {

class Ticker {
 public:
  Ticker(const std::string& name, Duration every, std::function<void()> tick);
  // Waits for a running tick.
  ~Ticker();

 private:
  void Run(Duration every, const std::function<void()>& tick) ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace cairn
