// Busy polling: waits for a message by spinning instead of sleeping, where that pays. In an exchange of small
// messages an answer takes a few microseconds, and waking a sleeping thread takes several times as long,
// above all in a virtual machine.
//
// In other situations spinning wastes a core. A thread spins only if its last waits were short and no other
// thread wants the core. Either all pollers of a process may spin or none: if too many of them wait, a
// sleeping poller would have to be woken on a core that a spinning poller occupies.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

namespace cairn::net {

// Counts the threads that want to spin at the same time. Thread-safe.
template <typename Clock = std::chrono::steady_clock>
class BusyPollers {
 public:
  // After more than `most` threads have wanted to spin at the same time, none spins for this long.
  static constexpr std::chrono::milliseconds kCrowded{100};

  explicit BusyPollers(int most) : most_(most) {}

  // Counts the calling thread until Leave(). Returns whether it may spin.
  bool Enter() {
    const auto now = Clock::now();
    if (++count_ > most_) crowded_until_ = now + kCrowded;
    return now >= crowded_until_.load();
  }
  void Leave() { --count_; }

 private:
  const int most_;
  std::atomic<int> count_{0};
  std::atomic<typename Clock::time_point> crowded_until_{};
};

// Decides how a thread waits. One thread at a time.
template <typename Clock = std::chrono::steady_clock>
class BusyPoll {
 public:
  // The number of consecutive short waits before a wait spins.
  static constexpr int kTrusted = 2;
  // The longest time that one poll takes if no other thread wants the core.
  static constexpr std::chrono::microseconds kAlone{4};

  struct Options {
    // Waits below this duration count as short, whether the thread slept or not.
    std::chrono::microseconds short_wait{100};
    // The time to spin before sleeping.
    std::chrono::microseconds awake{50};
    // Whether the count of short waits starts again at zero when the thread was busy for longer than
    // `short_wait` between two waits, and when Distrust() is called. True for a thread that serves many
    // others.
    bool exchanges_alone = true;
  };
  // `pollers` must outlive this object.
  BusyPoll(BusyPollers<Clock>& pollers, const Options& options) : pollers_(pollers), options_(options) {}

  // Returns the result of `poll(timeout_ms)`, which behaves as poll(2). Calls `poll` with 0 while spinning,
  // then with `timeout_ms`.
  template <typename Poll>
  int Wait(int timeout_ms, Poll poll) {
    if (timeout_ms == 0) return poll(0);
    const auto begin = Clock::now();
    if (begin - end_ > options_.short_wait) Distrust();
    int ready = 0;
    if (short_waits_ == kTrusted) {
      if (pollers_.Enter()) ready = StayAwake(begin, poll);
      pollers_.Leave();  // a sleeping thread does not count
    }
    if (ready == 0) ready = poll(timeout_ms);
    end_ = Clock::now();
    short_waits_ = end_ - begin < options_.short_wait ? std::min(short_waits_ + 1, kTrusted) : 0;
    return ready;
  }

  // Starts the count of short waits again at zero. To be called when the last waits were short only because a
  // large payload was arriving in fragments.
  void Distrust() {
    if (options_.exchanges_alone) short_waits_ = 0;
  }

 private:
  template <typename Poll>
  int StayAwake(typename Clock::time_point begin, Poll poll) const {
    for (auto before = begin, now = begin; now - before < kAlone && now - begin < options_.awake;) {
      if (const int ready = poll(0); ready != 0) return ready;
      sched_yield();
      before = std::exchange(now, Clock::now());
    }
    return 0;
  }

  BusyPollers<Clock>& pollers_;
  const Options options_;
  int short_waits_ = 0;
  typename Clock::time_point end_{};  // when the last wait ended
};

}  // namespace cairn::net
