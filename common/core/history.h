// The course of a few numbers over the whole life of a process in bounded memory: points in time, of which
// every second one goes when there are too many. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "common/core/clock.h"
#include "common/core/mutex.h"

namespace cairn {

class History {
 public:
  struct Point {
    double seconds = 0;          // since the first one
    std::vector<double> values;  // [series]; a NaN is a gap
  };
  // At most `capacity` points, at least 2, none closer to the one before than `spacing` at first.
  History(size_t capacity, Duration spacing) : capacity_(capacity), spacing_(spacing) {}

  // Whether a point at `now` would be kept: cheap enough to ask at every step.
  bool Wants(TimePoint now) const ABSL_LOCKS_EXCLUDED(mutex_);
  void Add(TimePoint now, std::vector<double> values) ABSL_LOCKS_EXCLUDED(mutex_);

  std::vector<Point> points() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  Duration spacing_ ABSL_GUARDED_BY(mutex_);
  TimePoint first_ ABSL_GUARDED_BY(mutex_), next_ ABSL_GUARDED_BY(mutex_);
  std::vector<Point> points_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
