#include "worker/task/stop_on_signal.h"

#include <unistd.h>

#include <chrono>
#include <csignal>

#include "common/core/log.h"

namespace cairn::worker {

StopOnSignal::StopOnSignal(SignalQueue& signals) {
  thread_ = Thread("signals", [this, &signals] { Watch(signals); });
}

StopOnSignal::~StopOnSignal() {
  done_ = true;
  thread_.Join();
}

void StopOnSignal::SetTrainer(Trainer* trainer) {
  MutexLock lock(mutex_);
  trainer_ = trainer;
  if (trainer_ != nullptr && received_ != 0) trainer_->Stop();
}

void StopOnSignal::Watch(SignalQueue& signals) {
  while (!done_) {
    const auto signal = signals.WaitFor(std::chrono::milliseconds(100));
    if (!signal.has_value()) continue;
    if (received_ != 0) _exit(128 + *signal);
    LogInfo("stopping on signal ", *signal);
    MutexLock lock(mutex_);
    received_ = *signal == SIGHUP ? SIGTERM : *signal;
    if (trainer_ != nullptr) trainer_->Stop();
  }
}

}  // namespace cairn::worker
