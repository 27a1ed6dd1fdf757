#include "worker/adapt/bin_boundaries.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace cairn::worker {
namespace {

// Values in ascending order, each with the number of values that it stands for.
struct QuantileSummary {
  std::vector<float> values, weights;
};

// numpy.interp() with `xs` in ascending order.
double Interpolate(double x, const std::vector<float>& xs, const std::vector<float>& ys) {
  const auto above = std::upper_bound(xs.begin(), xs.end(), x);
  if (above == xs.begin()) return ys.front();
  const auto j = static_cast<size_t>(above - xs.begin()) - 1;
  if (j + 1 == xs.size() || xs[j] == x) return ys[j];
  const double slope = (double{ys[j + 1]} - ys[j]) / (double{xs[j + 1]} - xs[j]);
  return slope * (x - xs[j]) + ys[j];
}

// Keras' summarize().
QuantileSummary Summarize(std::vector<float> values, double epsilon) {
  std::sort(values.begin(), values.end());
  const double step = std::max(static_cast<double>(values.size()) / (1.0 / epsilon), 1.0);
  QuantileSummary summary;
  for (auto at = static_cast<size_t>(step - 1); at < values.size(); at += static_cast<size_t>(step))
    summary.values.push_back(values[at]);
  summary.weights.assign(summary.values.size(), static_cast<float>(step));
  return summary;
}

// Keras' compress_summary().
QuantileSummary Compress(const QuantileSummary& summary, double epsilon) {
  if (static_cast<double>(summary.values.size()) * epsilon < 1) return summary;
  std::vector<float> sums, shares;  // of the weights up to a value
  float sum = 0;
  for (const float weight : summary.weights) sums.push_back(sum += weight);
  for (const float part : sums) shares.push_back(part / sum);
  QuantileSummary compressed;
  double before = 0;
  const auto count = static_cast<int64_t>(std::ceil(1.0 / epsilon));
  for (int64_t i = 0; i < count; ++i) {
    const double share = epsilon + static_cast<double>(i) * epsilon;
    const double weight = Interpolate(share, shares, sums);
    compressed.values.push_back(static_cast<float>(Interpolate(share, shares, summary.values)));
    compressed.weights.push_back(static_cast<float>(weight - before));
    before = weight;
  }
  return compressed;
}

}  // namespace

std::vector<float> BinBoundaries(std::vector<float> values, int64_t num_bins, double epsilon) {
  const QuantileSummary summary = Compress(Summarize(std::move(values), epsilon), epsilon);
  std::vector<float> boundaries = Compress(summary, 1.0 / static_cast<double>(num_bins)).values;
  boundaries.pop_back();
  return boundaries;
}

}  // namespace cairn::worker
