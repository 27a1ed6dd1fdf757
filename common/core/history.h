// The values of a few series over the whole life of a process in bounded memory. When there are too many
// points, every second one is dropped and the spacing is doubled. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "common/core/clock.h"
#include "common/core/mutex.h"

namespace cairn {

class History {
 public:
  struct Point {
    double seconds = 0;          // since the first point
    std::vector<double> values;  // [series]; a NaN is a gap
  };
  // Keeps at most `capacity` (at least 2) points. `spacing`: the initial minimum distance between two points.
  History(size_t capacity, Duration spacing) : capacity_(capacity), spacing_(spacing) {}

  // Whether a point at `now` is due. Cheap enough to call at every step.
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
