// Signals as things to read, for a loop that polls or waits.
//
// Made at the start of main, before any other thread: threads inherit that the signals are blocked. One at a
// time. Restores the signal mask when it goes.
#pragma once

#include <chrono>
#include <csignal>
#include <initializer_list>
#include <optional>

#include "common/core/status.h"

namespace cairn {

// The exit code of a task that `signal` stopped. SIGHUP, which a closed terminal sends, counts as SIGTERM.
inline ExitCode ExitCodeOfSignal(int signal) {
  return signal == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated;
}

class SignalQueue {
 public:
  // A SIGHUP that our parent ignores, as nohup does, stays ignored: for us and for the processes that we
  // start.
  explicit SignalQueue(std::initializer_list<int> signals);
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_; }  // readable when a signal waits
  std::optional<int> Next();      // does not block
  // The next signal, if one comes within `limit`.
  std::optional<int> WaitFor(std::chrono::milliseconds limit);

 private:
  sigset_t old_mask_;
  int fd_;
};

}  // namespace cairn
