// Keras' MeanMetricWrapper: the mean of a metric's value for each example, weighted by the examples' weights
// (keras/src/metrics/reduction_metrics.py).
#pragma once

#include "nn/metrics/metric.h"

namespace cairn::nn {

class ExampleMean : public Metric {
 public:
  void Update(absl::Span<const float> outputs, absl::Span<const float> targets,
              absl::Span<const float> weights) final {
    const auto stride = static_cast<size_t>(params_.rows_per_example * params_.width);
    const size_t examples = outputs.size() / stride;
    if (examples == 0) return;
    const size_t targets_stride = targets.size() / examples;
    for (size_t i = 0; i < examples; ++i) {
      const double weight = weights.empty() ? 1.0 : double{weights[i]};
      total_ += weight * OfExample(outputs.subspan(i * stride, stride),
                                   targets.subspan(i * targets_stride, targets_stride));
      count_ += weight;
    }
  }
  double Result() const override { return count_ == 0 ? 0 : total_ / count_; }
  void Reset() final { total_ = count_ = 0; }

 protected:
  explicit ExampleMean(const MetricParams& params) : params_(params) {}
  const MetricParams& params() const { return params_; }

 private:
  // The metric for one example: the mean over its rows or outputs.
  virtual double OfExample(absl::Span<const float> outputs, absl::Span<const float> targets) const = 0;

  const MetricParams params_;
  double total_ = 0, count_ = 0;
};

}  // namespace cairn::nn
