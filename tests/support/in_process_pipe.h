// Parts of the wires of the in-process cluster: a queue between two threads, and the delay of a message.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "common/core/mutex.h"
#include "common/core/random.h"

namespace cairn::test {

// One direction of a wire. Closing it loses the messages under way, as a broken connection does. Thread-safe.
template <typename Message>
class Pipe {
 public:
  void Push(Message message) {
    MutexLock lock(mutex_);
    if (closed_) return;
    queue_.push_back(std::move(message));
    changed_.NotifyAll();
  }
  // Waits for a message, without limit. Returns nullopt when the pipe is closed, which its owner's destructor
  // does.
  std::optional<Message> Pop() {
    MutexLock lock(mutex_);
    while (!closed_ && queue_.empty()) changed_.Wait(mutex_);
    if (closed_) return std::nullopt;
    std::optional<Message> message = std::move(queue_.front());
    queue_.pop_front();
    return message;
  }
  // For readers of several pipes: waits until there is a message or the pipe is closed. False: neither by
  // `deadline`.
  bool Await(std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(mutex_);
    while (!closed_ && queue_.empty()) {
      if (!changed_.WaitUntil(mutex_, deadline)) return false;
    }
    return true;
  }
  // Nullopt: there is no message.
  std::optional<Message> TryPop() {
    MutexLock lock(mutex_);
    if (queue_.empty()) return std::nullopt;
    std::optional<Message> message = std::move(queue_.front());
    queue_.pop_front();
    return message;
  }
  bool closed() const {
    MutexLock lock(mutex_);
    return closed_;
  }
  void Close() {
    std::deque<Message> lost;  // destroyed outside the lock
    MutexLock lock(mutex_);
    closed_ = true;
    lost.swap(queue_);
    changed_.NotifyAll();
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
};

// A random time per message, from 0 to `longest`. One thread.
class Delay {
 public:
  Delay(uint64_t seed, uint64_t stream, std::chrono::microseconds longest)
      : random_(seed, stream), longest_(longest) {}
  void Wait() {
    if (longest_.count() == 0) return;
    std::this_thread::sleep_for(
        std::chrono::microseconds(random_.NextBelow(static_cast<uint32_t>(longest_.count()) + 1)));
  }

 private:
  Random random_;
  const std::chrono::microseconds longest_;
};

struct DelayOptions {
  uint64_t seed = 1;
  std::chrono::microseconds longest{0};
};

}  // namespace cairn::test
