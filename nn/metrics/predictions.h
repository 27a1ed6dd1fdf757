// Positive and negative predictions, for several metrics. Every output is a separate prediction. A target
// other than 0 is positive. Every prediction has the weight of its example.
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "nn/metrics/metric.h"

namespace cairn::nn {

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
