// The areas under the ROC curve and the precision-recall curve (keras/src/metrics/confusion_metrics.py, AUC).
// A curve goes through one point for each threshold: the counts of true and false positives above it.
#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/metrics/metric.h"
#include "nn/metrics/predictions.h"
#include "nn/metrics/score_counts.h"

namespace cairn::nn {
namespace {

struct CurvePoint {
  double true_positives = 0, false_positives = 0;
};

// Adds up the area from the highest threshold to the lowest.
class CurveArea {
 public:
  explicit CurveArea(bool precision_recall) : precision_recall_(precision_recall) {}

  // The next lower threshold, above which there are also these predictions.
  void Add(double positives, double negatives) {
    const CurvePoint next = {last_.true_positives + positives, last_.false_positives + negatives};
    area_ += precision_recall_ ? PrecisionRecallSlice(last_, next) : RocSlice(last_, next);
    last_ = next;
  }

  // The area of all predictions.
  double Result() const {
    const double whole =
        precision_recall_ ? last_.true_positives : last_.true_positives * last_.false_positives;
    return Ratio(area_, whole);
  }

 private:
  // The trapezoidal rule on the curve of recall over the false positive rate. If the thresholds separate all
  // different scores, this is the number of pairs of a positive and a negative in the right order, where equal
  // scores count half: the rank sum of Mann and Whitney, 1947.
  static double RocSlice(const CurvePoint& above, const CurvePoint& next) {
    return (next.false_positives - above.false_positives) * (next.true_positives + above.true_positives) / 2;
  }

  // Davis & Goadrich 2006, section 4, in the closed form of Keras' interpolate_pr_auc. Between two
  // thresholds, true positives are a linear function of all predicted positives p, with the slope `slope`.
  // Precision is true positives divided by p.
  static double PrecisionRecallSlice(const CurvePoint& above, const CurvePoint& next) {
    const double p_above = above.true_positives + above.false_positives;
    const double p = next.true_positives + next.false_positives;
    const double gained = next.true_positives - above.true_positives;
    const double slope = Ratio(gained, std::max(p - p_above, 0.0));
    const double intercept = above.true_positives - slope * p_above;
    const double logarithm = p > 0 && p_above > 0 ? std::log(p / p_above) : 0;
    return slope * (gained + intercept * logarithm);
  }

  const bool precision_recall_;
  CurvePoint last_;
  double area_ = 0;
};

// Thresholds between all different scores. The scores may be any floats.
class ExactArea final : public Metric {
 public:
  explicit ExactArea(const MetricParams& params) : params_(params) {}

  void Update(absl::Span<const float> outputs, absl::Span<const float> targets,
              absl::Span<const float> weights) override {
    ForEachPrediction(outputs, targets, weights, params_, [&](float output, bool positive, double weight) {
      if (weight != 0) counts_.Add(output, positive, weight);
    });
  }
  double Result() const override {
    CurveArea area(params_.precision_recall);
    counts_.ForEachScoreFromAbove(
        [&area](double positives, double negatives) { area.Add(positives, negatives); });
    return area.Result();
  }
  void Reset() override { counts_.Reset(); }

 private:
  const MetricParams params_;
  ScoreCounts counts_;
};

// Keras' approximation with evenly spaced thresholds t_i = i / (n - 1), the first slightly below 0 and the last
// slightly above 1. Predictions are counted in buckets (t_i, t_{i+1}]. The predictions above threshold t_i are
// in bucket i or in a higher bucket.
class ApproximateArea final : public Metric {
 public:
  explicit ApproximateArea(const MetricParams& params)
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
    CurveArea area(params_.precision_recall);
    for (size_t i = positives_.size(); i-- > 0;) area.Add(positives_[i], negatives_[i]);
    return area.Result();
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

  const MetricParams params_;
  std::vector<double> positives_, negatives_;  // [num_thresholds]; the last element is always 0
};

}  // namespace

std::unique_ptr<Metric> MakeAuc(const MetricParams& params) {
  if (params.num_thresholds == 0) return std::make_unique<ExactArea>(params);
  return std::make_unique<ApproximateArea>(params);
}

}  // namespace cairn::nn
