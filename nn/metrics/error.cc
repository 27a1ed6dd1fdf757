// The distance between predictions and targets (keras/src/metrics/regression_metrics.py).
#include <cmath>

#include "nn/metrics/example_mean.h"

namespace cairn::nn {
namespace {

using Values = absl::Span<const float>;

class MeanSquaredError : public ExampleMean {
 public:
  explicit MeanSquaredError(const MetricParams& params) : ExampleMean(params) {}

 private:
  double OfExample(Values outputs, Values targets) const override {
    double sum = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const double error = double{outputs[i]} - targets[i];
      sum += error * error;
    }
    return sum / static_cast<double>(outputs.size());
  }
};

class RootMeanSquaredError final : public MeanSquaredError {
 public:
  using MeanSquaredError::MeanSquaredError;
  double Result() const override { return std::sqrt(MeanSquaredError::Result()); }
};

class MeanAbsoluteError final : public ExampleMean {
 public:
  explicit MeanAbsoluteError(const MetricParams& params) : ExampleMean(params) {}

 private:
  double OfExample(Values outputs, Values targets) const override {
    double sum = 0;
    for (size_t i = 0; i < outputs.size(); ++i) sum += std::fabs(double{outputs[i]} - targets[i]);
    return sum / static_cast<double>(outputs.size());
  }
};

}  // namespace

std::unique_ptr<Metric> MakeMeanSquaredError(const MetricParams& params) {
  return std::make_unique<MeanSquaredError>(params);
}
std::unique_ptr<Metric> MakeMeanAbsoluteError(const MetricParams& params) {
  return std::make_unique<MeanAbsoluteError>(params);
}
std::unique_ptr<Metric> MakeRootMeanSquaredError(const MetricParams& params) {
  return std::make_unique<RootMeanSquaredError>(params);
}

}  // namespace cairn::nn
