#include "ps/shard/metrics.h"

#include <algorithm>
#include <chrono>

namespace cairn::ps {

void Metrics::OnUpdate(const std::vector<std::pair<int, TimePoint>>& came, TimePoint began, TimePoint now) {
  apply_seconds.Add(ToSeconds(now - began));
  if (came.empty()) return;
  const auto earlier = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto first = std::min_element(came.begin(), came.end(), earlier);
  const auto last = std::max_element(came.begin(), came.end(), earlier);
  round_seconds.Add(ToSeconds(now - first->second));
  if (came.size() < 2) return;
  const double spread = ToSeconds(last->second - first->second);
  spread_seconds.Add(spread);
  MutexLock lock(mutex_);
  Lateness& lateness = lateness_[last->first];
  ++lateness.times_last;
  lateness.seconds += spread;
}

std::map<int, Metrics::Lateness> Metrics::lateness() const {
  MutexLock lock(mutex_);
  return lateness_;
}

}  // namespace cairn::ps
