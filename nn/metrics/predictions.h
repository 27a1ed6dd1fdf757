// Positive and negative predictions, for several metrics. Every output is a separate prediction. A target
// other than 0 is positive. Every prediction has the weight of its example.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/types/span.h"
#include "nn/metrics/metric.h"

namespace cairn::nn {

// Like NumPy's argmax: the first of equal elements; NaN is larger than all numbers.
inline size_t IndexOfLargest(absl::Span<const float> row) {
  const auto smaller = [](float a, float b) { return a < b || (std::isnan(b) && !std::isnan(a)); };
  return static_cast<size_t>(std::max_element(row.begin(), row.end(), smaller) - row.begin());
}

// Whether IndexOfLargest(row) is `index`. Faster, because it ends soon if another element is larger.
inline bool IsIndexOfLargest(absl::Span<const float> row, size_t index) {
  constexpr size_t kBlock = 256;
  const float largest = row[index];
  if (std::isnan(largest)) return IndexOfLargest(row) == index;
  // Without a branch for each element, so that compilers use vectors. A comparison with NaN is false.
  for (size_t begin = 0; begin < index; begin += kBlock) {
    unsigned beaten = 0;
    for (const float other : row.subspan(begin, std::min(kBlock, index - begin)))
      beaten |= !(other < largest);
    if (beaten != 0) return false;
  }
  for (size_t begin = index + 1; begin < row.size(); begin += kBlock) {
    unsigned beaten = 0;
    for (const float other : row.subspan(begin, std::min(kBlock, row.size() - begin)))
      beaten |= !(other <= largest);
    if (beaten != 0) return false;
  }
  return true;
}

// Keras' divide_no_nan.
inline double Ratio(double numerator, double denominator) {
  return denominator == 0 ? 0 : numerator / denominator;
}

// Calls visit(output, is_positive, weight) for every prediction.
template <typename Visit>
void ForEachPrediction(absl::Span<const float> outputs, absl::Span<const float> targets,
                       absl::Span<const float> weights, const MetricParams& params, const Visit& visit) {
  const auto stride = static_cast<size_t>(params.rows_per_example * params.width);
  for (size_t i = 0; i < outputs.size(); ++i) {
    visit(outputs[i], targets[i] != 0, weights.empty() ? 1.0 : double{weights[i / stride]});
  }
}

}  // namespace cairn::nn
