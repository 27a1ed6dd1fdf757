// A clock that only a test moves. Thread-safe.
#pragma once

#include <atomic>

#include "common/core/clock.h"

namespace cairn::test {

class FakeClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(Duration(since_epoch_.load())); }
  void Advance(Duration by) { since_epoch_ += by.count(); }

 private:
  std::atomic<Duration::rep> since_epoch_{Duration(std::chrono::hours(1)).count()};
};

}  // namespace cairn::test
