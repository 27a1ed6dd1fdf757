// Monotonic time behind an interface, so that tests of leases and time limits need not wait.
#pragma once

#include <chrono>

namespace cairn {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

inline double ToSeconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}
// A duration given in seconds by a flag or a message, rounded down.
inline Duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}
// The monotonic time, where no test replaces the clock.
inline TimePoint SteadyNow() {
  return std::chrono::steady_clock::now();
}
// Wall-clock time in seconds since 1970.
inline double UnixSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;  // any thread
};

class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override { return SteadyNow(); }
};

}  // namespace cairn
