#include "common/system/ticker.h"

#include <chrono>
#include <utility>

namespace cairn {

Ticker::Ticker(const std::string& name, Duration every, std::function<void()> tick)
    : thread_(name, [this, every, tick = std::move(tick)] { Run(every, tick); }) {}

Ticker::~Ticker() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.Join();
}

void Ticker::Run(Duration every, const std::function<void()>& tick) {
  for (;;) {
    {
      MutexLock lock(mutex_);
      const TimePoint wake = std::chrono::steady_clock::now() + every;
      while (!stopping_ && std::chrono::steady_clock::now() < wake) changed_.WaitUntil(mutex_, wake);
      if (stopping_) return;
    }
    tick();
  }
}

}  // namespace cairn
