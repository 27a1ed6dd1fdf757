// Metrics computed from the counts of true and false positives and negatives
// (keras/src/metrics/confusion_metrics.py). Counts are sums of the examples' weights.
#include "nn/metrics/metric.h"
#include "nn/metrics/predictions.h"

namespace cairn::nn {
namespace {

// True positives divided by all predicted positives (precision) or all positives (recall).
class PositivesRatio final : public Metric {
 public:
  enum class Of { kPredictedPositives, kPositives };
  PositivesRatio(const MetricParams& params, Of of) : params_(params), of_(of) {}

  void Update(absl::Span<const float> outputs, absl::Span<const float> targets,
              absl::Span<const float> weights) override {
    const auto threshold = static_cast<float>(params_.threshold);
    ForEachPrediction(outputs, targets, weights, params_, [&](float output, bool positive, double weight) {
      const bool predicted = output > threshold;
      if (predicted && positive) true_positives_ += weight;
      if (of_ == Of::kPositives ? positive : predicted) all_ += weight;
    });
  }
  double Result() const override { return Ratio(true_positives_, all_); }
  void Reset() override { true_positives_ = all_ = 0; }

 private:
  const MetricParams params_;
  const Of of_;
  double true_positives_ = 0, all_ = 0;
};

// Counts the predictions of one kind.
class PredictionCount final : public Metric {
 public:
  // Counts predictions for which the prediction and the target have the given values.
  PredictionCount(const MetricParams& params, bool predicted, bool positive)
      : params_(params), predicted_(predicted), positive_(positive) {}

  void Update(absl::Span<const float> outputs, absl::Span<const float> targets,
              absl::Span<const float> weights) override {
    const auto threshold = static_cast<float>(params_.threshold);
    ForEachPrediction(outputs, targets, weights, params_, [&](float output, bool positive, double weight) {
      if ((output > threshold) == predicted_ && positive == positive_) count_ += weight;
    });
  }
  double Result() const override { return count_; }
  void Reset() override { count_ = 0; }

 private:
  const MetricParams params_;
  const bool predicted_, positive_;
  double count_ = 0;
};

}  // namespace

std::unique_ptr<Metric> MakePrecision(const MetricParams& params) {
  return std::make_unique<PositivesRatio>(params, PositivesRatio::Of::kPredictedPositives);
}
std::unique_ptr<Metric> MakeRecall(const MetricParams& params) {
  return std::make_unique<PositivesRatio>(params, PositivesRatio::Of::kPositives);
}
std::unique_ptr<Metric> MakeTruePositives(const MetricParams& params) {
  return std::make_unique<PredictionCount>(params, /*predicted=*/true, /*positive=*/true);
}
std::unique_ptr<Metric> MakeTrueNegatives(const MetricParams& params) {
  return std::make_unique<PredictionCount>(params, /*predicted=*/false, /*positive=*/false);
}
std::unique_ptr<Metric> MakeFalsePositives(const MetricParams& params) {
  return std::make_unique<PredictionCount>(params, /*predicted=*/true, /*positive=*/false);
}
std::unique_ptr<Metric> MakeFalseNegatives(const MetricParams& params) {
  return std::make_unique<PredictionCount>(params, /*predicted=*/false, /*positive=*/true);
}

}  // namespace cairn::nn
