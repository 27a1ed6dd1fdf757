// What is counted while the work goes on, and read now and then by whoever shows it: numbers that cost an
// atomic addition to change. Thread-safe; a reader may see one number of a moment and another of the next.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace cairn {

// Rises only.
class Counter {
 public:
  void Add(int64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// How often values were how large.
class Distribution {
 public:
  // `limits`: the largest value of each bucket but the last, rising.
  explicit Distribution(std::initializer_list<double> limits) : limits_(limits), counts_(limits.size() + 1) {}

  void Add(double value) {
    const auto bucket = std::lower_bound(limits_.begin(), limits_.end(), value) - limits_.begin();
    counts_[static_cast<size_t>(bucket)].Add();
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  const std::vector<double>& limits() const { return limits_; }
  int64_t count_in(size_t bucket) const { return counts_[bucket].value(); }  // [limits, and one more]
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

// Seconds from a tenth of a millisecond to a minute: what a step, a round or a call takes.
inline constexpr std::initializer_list<double> kSecondsLimits = {
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};

}  // namespace cairn
