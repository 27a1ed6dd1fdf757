// Simulated time, and messages on their way. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "common/core/random.h"
#include "tests/support/fake_clock.h"

namespace cairn::simulation {

// What will happen, by time; what is due at the same time, in the order in which it was planned.
class Events {
 public:
  explicit Events(test::FakeClock& clock) : clock_(clock) {}

  double now() const { return now_; }  // seconds since the start
  void After(double seconds, std::function<void()> what) { At(now_ + seconds, std::move(what)); }
  void At(double seconds, std::function<void()> what) { queue_.push({seconds, ++planned_, std::move(what)}); }
  bool empty() const { return queue_.empty(); }
  // Lets the next one happen.
  void Step() {
    Event next = std::move(const_cast<Event&>(queue_.top()));  // NOLINT: it is popped before it is compared
    queue_.pop();
    const auto target = static_cast<Duration::rep>(next.at * 1e9);
    clock_.Advance(Duration(target - ticks_));
    ticks_ = target;
    now_ = next.at;
    next.what();
  }

 private:
  struct Event {
    double at;
    int64_t number;
    std::function<void()> what;
    bool operator<(const Event& other) const {  // the top of the queue is the largest
      return at != other.at ? at > other.at : number > other.number;
    }
  };
  test::FakeClock& clock_;
  std::priority_queue<Event> queue_;
  double now_ = 0;
  Duration::rep ticks_ = 0;
  int64_t planned_ = 0;
};

// One direction of a stream: messages take a random time and stay in order. Break() loses those on their way.
class Way {
 public:
  void Send(Events& events, Random& random, double longest_delay, std::function<void()> deliver) {
    last_ = std::max(last_, events.now() + longest_delay * random.NextUniform());
    events.At(last_, [this, life = life_, deliver = std::move(deliver)] {
      if (life == life_) deliver();
    });
  }
  void Break() { ++life_; }

 private:
  double last_ = 0;
  int64_t life_ = 0;
};

}  // namespace cairn::simulation
