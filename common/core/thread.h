// A thread with a name (shown by ps -L, gdb and perf) that joins in its destructor. Every thread of ours is
// made here, so that one that the system refuses is an error with a text and not an exception that nobody
// catches.
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
  // For a thread without which the program cannot go on: where the system refuses it, the program ends with
  // exit code 1 and Start()'s error. `name`: at most 15 characters are kept.
  Thread(std::string name, absl::AnyInvocable<void()> body);
  // For a thread that one peer or one request needs. RESOURCE_EXHAUSTED, naming the thread and the limits
  // that may be at fault, where the system refuses it; `body` is then destroyed without having run.
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
