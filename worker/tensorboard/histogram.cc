#include "worker/tensorboard/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace cairn::worker {
namespace {

// Upper limits of all buckets, ascending; the last one exceeds every value.
const std::vector<double>& Limits() {
  static const auto* const limits = [] {
    std::vector<double> positive;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
    auto* all = new std::vector<double>;
    all->push_back(-std::numeric_limits<double>::max());
    for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) all->push_back(-*limit);
    all->push_back(0);
    all->insert(all->end(), positive.begin(), positive.end());
    all->push_back(std::numeric_limits<double>::max());
    return all;
  }();
  return *limits;
}

}  // namespace

tensorboard::v1::Histogram HistogramOf(absl::Span<const float> values) {
  const std::vector<double>& limits = Limits();
  std::vector<double> counts(limits.size(), 0);
  tensorboard::v1::Histogram histogram;
  double min = std::numeric_limits<double>::max(), max = -min, sum = 0, squares = 0, number = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    const auto bucket = std::upper_bound(limits.begin(), limits.end(), value) - limits.begin();
    ++counts[static_cast<size_t>(bucket)];
    min = std::min(min, value);
    max = std::max(max, value);
    sum += value;
    squares += value * value;
    ++number;
  }
  if (number == 0) min = max = 0;
  histogram.set_min(min);
  histogram.set_max(max);
  histogram.set_num(number);
  histogram.set_sum(sum);
  histogram.set_sum_squares(squares);
  for (size_t i = 0; i < limits.size();) {
    size_t last = i;  // the end of the run of empty buckets; `i` if this bucket is not empty
    while (counts[i] == 0 && last + 1 < limits.size() && counts[last + 1] == 0) ++last;
    histogram.add_bucket_limit(limits[last]);
    histogram.add_bucket(counts[last]);
    i = last + 1;
  }
  return histogram;
}

}  // namespace cairn::worker
