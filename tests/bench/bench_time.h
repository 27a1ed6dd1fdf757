// Times of benchmarks that run in one thread.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cairn {

// The processor time of the calling thread.
inline double ThreadSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// For an even number of values, the upper of the two in the middle. `values` must not be empty.
inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace cairn
