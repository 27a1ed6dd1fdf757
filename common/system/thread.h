// A thread with a name (shown by ps -L, gdb and perf) that joins in its destructor. Every thread of Cairn is
// created here, so that a failure to start one is an error with a message, not an uncaught exception.
#pragma once

#include <string>
#include <thread>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

namespace cairn {

class Thread {
 public:
  Thread() = default;
  // For a thread that the program cannot run without: if it cannot be started, the program ends with exit
  // code 1 and the error of Start(). At most 15 characters of `name` are kept.
  Thread(std::string name, absl::AnyInvocable<void()> body);
  // For a thread that serves one peer or one request. RESOURCE_EXHAUSTED, naming the thread and the limits
  // that may be the reason, if it cannot be started; `body` is then destroyed without having run.
  static absl::StatusOr<Thread> Start(std::string name, absl::AnyInvocable<void()> body);

  Thread(Thread&&) = default;
  Thread& operator=(Thread&& other) {
    Join();
    thread_ = std::move(other.thread_);
    return *this;
  }
  ~Thread() { Join(); }

  void Join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  explicit Thread(std::thread thread) : thread_(std::move(thread)) {}

  std::thread thread_;
};

}  // namespace cairn
