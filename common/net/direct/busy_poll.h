// Waits for a message without sleeping where that pays: in an exchange of small messages an answer takes some
// microseconds, and waking who sleeps takes several times as long, most of all in a virtual machine.
//
// Elsewhere a processor less would cost more than is won. So the last waits must have been short; nobody else
// may want the processor; and of those who wait at one time all stay awake or none does, since those that are
// asleep would have to be woken on processors that the others keep.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

namespace cairn::net {

// How many would stay awake at one time. Thread-safe.
template <typename Clock = std::chrono::steady_clock>
class BusyPollers {
 public:
  // After more than `most` at one time none stays awake for so long.
  static constexpr std::chrono::milliseconds kCrowded{100};

  explicit BusyPollers(int most) : most_(most) {}

  // One more, until Leave(). Whether it may stay awake.
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

// One thread at a time.
template <typename Clock = std::chrono::steady_clock>
class BusyPoll {
 public:
  // So many short waits in a row first.
  static constexpr int kTrusted = 2;
  // What asking once takes at most, if nobody else wants the processor.
  static constexpr std::chrono::microseconds kAlone{4};

  struct Options {
    // A wait is short if it is over by then, asleep or not.
    std::chrono::microseconds short_wait{100};
    // How long it is worth while to stay awake.
    std::chrono::microseconds awake{50};
    // What was done between two waits, if it took longer than a short one, and what Distrust() is told of,
    // make one begin anew: for who has to do with many others.
    bool exchanges_alone = true;
  };
  // `pollers` outlives it.
  BusyPoll(BusyPollers<Clock>& pollers, const Options& options) : pollers_(pollers), options_(options) {}

  // What `poll(timeout_ms)`, as poll(2), returns: asked with 0 for as long as this stays awake, and then with
  // `timeout_ms`.
  template <typename Poll>
  int Wait(int timeout_ms, Poll poll) {
    if (timeout_ms == 0) return poll(0);
    const auto begin = Clock::now();
    if (begin - end_ > options_.short_wait) Distrust();
    int ready = 0;
    if (short_waits_ == kTrusted) {
      if (pollers_.Enter()) ready = StayAwake(begin, poll);
      pollers_.Leave();  // who sleeps keeps nobody from staying awake
    }
    if (ready == 0) ready = poll(timeout_ms);
    end_ = Clock::now();
    short_waits_ = end_ - begin < options_.short_wait ? std::min(short_waits_ + 1, kTrusted) : 0;
    return ready;
  }

  // The short waits so far do not count: they were for parts of something large.
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
  typename Clock::time_point end_{};  // of the last
};

}  // namespace cairn::net
