// Metrics: counters and histograms that cost one atomic addition per update. Thread-safe. Readers do not get
// a consistent snapshot: two metrics may be from different moments.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace cairn {

// A number that only grows.
class Counter {
 public:
  void Add(int64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// A histogram.
class Distribution {
 public:
  // `limits`: the largest value of each bucket but the last (which is unbounded), ascending.
  explicit Distribution(std::initializer_list<double> limits) : limits_(limits), counts_(limits.size() + 1) {}

  void Add(double value) {
    const auto bucket = std::lower_bound(limits_.begin(), limits_.end(), value) - limits_.begin();
    counts_[static_cast<size_t>(bucket)].Add();
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  const std::vector<double>& limits() const { return limits_; }
  // `bucket`: 0 ... limits().size().
  int64_t count_in(size_t bucket) const { return counts_[bucket].value(); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }
  int64_t count() const {
    int64_t count = 0;
    for (const Counter& bucket : counts_) count += bucket.value();
    return count;
  }

 private:
  const std::vector<double> limits_;
  std::vector<Counter> counts_;
  std::atomic<double> sum_{0};
};

// Bucket limits in seconds, from 0.1 ms to a minute, for the duration of a step, a round or a call.
inline constexpr std::initializer_list<double> kSecondsLimits = {
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};

}  // namespace cairn
