// Blocks signals and delivers them by a file descriptor, for a loop that polls or waits.
//
// Create it at the start of main, before any other thread: threads inherit the mask that blocks the signals.
// Only one may exist at a time. Its destructor restores the signal mask.
#pragma once

#include <chrono>
#include <csignal>
#include <initializer_list>
#include <optional>

#include "common/core/status.h"

namespace cairn {

// The exit code of a task stopped by `signal`. SIGHUP, which a closed terminal sends, counts as SIGTERM.
inline ExitCode ExitCodeOfSignal(int signal) {
  return signal == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated;
}

class SignalQueue {
 public:
  // If the parent process ignores SIGHUP, as nohup does, it stays ignored in this process and its children.
  explicit SignalQueue(std::initializer_list<int> signals);
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_; }  // readable while a signal is pending
  // The next pending signal, if any. Does not block.
  std::optional<int> Next();
  // Blocks for up to `limit` until a signal arrives.
  std::optional<int> WaitFor(std::chrono::milliseconds limit);

 private:
  sigset_t old_mask_;
  int fd_;
};

}  // namespace cairn
