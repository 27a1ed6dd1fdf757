#include "common/core/history.h"

#include <chrono>
#include <utility>

namespace cairn {

bool History::Wants(TimePoint now) const {
  MutexLock lock(mutex_);
  return points_.empty() || now >= next_;
}

void History::Add(TimePoint now, std::vector<double> values) {
  MutexLock lock(mutex_);
  if (points_.empty()) first_ = now;
  points_.push_back({ToSeconds(now - first_), std::move(values)});
  if (points_.size() > capacity_) {
    std::vector<Point> fewer;
    for (size_t i = 0; i < points_.size(); i += 2) fewer.push_back(std::move(points_[i]));
    points_ = std::move(fewer);
    spacing_ *= 2;
  }
  next_ = now + spacing_;
}

std::vector<History::Point> History::points() const {
  MutexLock lock(mutex_);
  return points_;
}

}  // namespace cairn
