// Metrics computed from the counts of true and false positives and negatives
// (keras/src/metrics/confusion_metrics.py). Every output is a separate prediction, a target other than 0 is
// positive, and counts are sums of the examples' weights.
#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/metrics/metric.h"

namespace cairn::nn {
namespace {

// Keras' divide_no_nan.
double Ratio(double numerator, double denominator) {
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

// The area under a curve through the points of evenly spaced thresholds t_i = i / (n - 1), the first slightly
// below 0 and the last slightly above 1. Predictions are counted in buckets (t_i, t_{i+1}]. The predictions
// above threshold t_i are in bucket i or in a higher bucket.
class AreaUnderCurve final : public Metric {
 public:
  explicit AreaUnderCurve(const MetricParams& params)
      : params_(params),
        positives_(static_cast<size_t>(params.num_thresholds)),
        negatives_(static_cast<size_t>(params.num_thresholds)) {}

  void Update(absl::Span<const float> outputs, absl::Span<const float> targets,
              absl::Span<const float> weights) override {
    ForEachPrediction(outputs, targets, weights, params_, [&](float output, bool positive, double weight) {
      (positive ? positives_ : negatives_)[BucketOf(output)] += weight;
    });
  }
  double Result() const override {
    const std::vector<double> true_positives = SumsFromAbove(positives_);
    const std::vector<double> false_positives = SumsFromAbove(negatives_);
    return params_.precision_recall ? PrecisionRecallArea(true_positives, false_positives)
                                    : RocArea(true_positives, false_positives);
  }
  void Reset() override {
    std::fill(positives_.begin(), positives_.end(), 0.0);
    std::fill(negatives_.begin(), negatives_.end(), 0.0);
  }

 private:
  size_t BucketOf(float output) const {
    if (params_.from_logits) output = 1.0f / (1.0f + std::exp(-output));
    const float prediction = output > 0 ? std::min(output, 1.0f) : 0.0f;
    const float bucket = std::ceil(prediction * static_cast<float>(params_.num_thresholds - 1)) - 1;
    return static_cast<size_t>(std::max(bucket, 0.0f));
  }

  static std::vector<double> SumsFromAbove(std::vector<double> buckets) {
    for (size_t i = buckets.size() - 1; i-- > 0;) buckets[i] += buckets[i + 1];
    return buckets;
  }

  // The trapezoidal rule on the curve of recall over the false positive rate.
  static double RocArea(const std::vector<double>& true_positives,
                        const std::vector<double>& false_positives) {
    double area = 0;
    for (size_t i = 0; i + 1 < true_positives.size(); ++i) {
      const double width = Ratio(false_positives[i] - false_positives[i + 1], false_positives[0]);
      area += width * Ratio(true_positives[i] + true_positives[i + 1], true_positives[0]) / 2;
    }
    return area;
  }

  // Davis & Goadrich 2006, section 4, in the closed form of Keras' interpolate_pr_auc. Between two
  // thresholds, true positives are a linear function of all predicted positives p, with the slope `slope`.
  // Precision is true positives divided by p.
  static double PrecisionRecallArea(const std::vector<double>& true_positives,
                                    const std::vector<double>& false_positives) {
    double area = 0;
    for (size_t i = 0; i + 1 < true_positives.size(); ++i) {
      const double above = true_positives[i + 1] + false_positives[i + 1];
      const double p = true_positives[i] + false_positives[i];
      const double gained = true_positives[i] - true_positives[i + 1];
      const double slope = Ratio(gained, std::max(p - above, 0.0));
      const double intercept = true_positives[i + 1] - slope * above;
      const double logarithm = p > 0 && above > 0 ? std::log(p / above) : 0;
      area += Ratio(slope * (gained + intercept * logarithm), std::max(true_positives[0], 0.0));
    }
    return area;
  }

  const MetricParams params_;
  std::vector<double> positives_, negatives_;  // [num_thresholds]; the last element is always 0
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
std::unique_ptr<Metric> MakeAuc(const MetricParams& params) {
  return std::make_unique<AreaUnderCurve>(params);
}

}  // namespace cairn::nn
