// Signals as things to read: SIGINT, SIGTERM, SIGHUP and SIGCHLD, for a loop that polls.
//
// One at a time, in a program's only thread. Restores the signal mask when it goes.
#pragma once

#include <csignal>
#include <optional>

namespace cairn::cli {

class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_; }  // readable when a signal waits
  std::optional<int> Next();      // does not block

 private:
  sigset_t old_mask_;
  int fd_;
};

}  // namespace cairn::cli
