// Simulated time, and messages under way. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "common/core/random.h"
#include "tests/support/fake_clock.h"

namespace cairn::simulation {

// Future events, ordered by time. Events of the same time happen in the order in which they were planned.
class Events {
 public:
  explicit Events(test::FakeClock& clock) : clock_(clock) {}

  double now() const { return now_; }  // seconds since the start
  void After(double seconds, std::function<void()> what) { At(now_ + seconds, std::move(what)); }
  void At(double seconds, std::function<void()> what) { queue_.push({seconds, ++planned_, std::move(what)}); }
  bool empty() const { return queue_.empty(); }
  // Executes the next event.
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

// One direction of a stream: messages take a random time and stay in order. Break() and the destructor lose
// those under way.
class Way {
 public:
  Way() = default;
  Way(Way&&) = default;
  ~Way() {
    if (life_ != nullptr) Break();
  }

  // `awake_at`: a receiver that is paused until then takes the message later.
  void Send(Events& events, Random& random, double longest_delay, std::function<void()> deliver,
            std::function<double()> awake_at) {
    last_ = std::max(last_, events.now() + longest_delay * random.NextUniform());
    Plan(events, last_, {life_, *life_, std::move(deliver), std::move(awake_at)});
  }
  void Break() { ++*life_; }

 private:
  struct Message {
    std::shared_ptr<int64_t> life;
    int64_t sent;
    std::function<void()> deliver;
    std::function<double()> awake_at;
  };
  static void Plan(Events& events, double at, Message message) {
    events.At(at, [&events, message = std::move(message)] {
      if (*message.life != message.sent) return;
      if (const double awake = message.awake_at(); awake > events.now()) {
        Plan(events, awake, message);
      } else {
        message.deliver();
      }
    });
  }

  double last_ = 0;
  std::shared_ptr<int64_t> life_ = std::make_shared<int64_t>(0);
};

// Cancels its events when it is destroyed.
class Plans {
 public:
  std::function<void()> Of(std::function<void()> what) const {
    return [alive = std::weak_ptr<const bool>(alive_), what = std::move(what)] {
      if (!alive.expired()) what();
    };
  }

 private:
  const std::shared_ptr<const bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cairn::simulation
