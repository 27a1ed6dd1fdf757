// A thread with a name (shown by ps -L, gdb and perf) that joins in its destructor.
#pragma once

#include <string>
#include <thread>
#include <utility>

#include "absl/functional/any_invocable.h"

namespace cairn {

class Thread {
 public:
  Thread() = default;
  // `name`: at most 15 characters are kept.
  Thread(std::string name, absl::AnyInvocable<void()> body);
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
  std::thread thread_;
};

}  // namespace cairn
