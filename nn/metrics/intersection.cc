// The intersection over union of segmented classes (keras/src/metrics/iou_metrics.py): of all rows with a class as
// label or as prediction, the fraction with both. Counts are sums of the examples' weights.
#include <algorithm>
#include <numeric>
#include <vector>

#include "nn/metrics/metric.h"
#include "nn/metrics/predictions.h"

namespace cairn::nn {
namespace {

// The mean over the classes that occur, of those that count.
class IntersectionOverUnion final : public Metric {
 public:
  // The meaning of an output and its target: a score of each class, or the score of class 1.
  enum class Rows { kClasses, kBinary };
  IntersectionOverUnion(const MetricParams& params, Rows rows)
      : params_(params),
        rows_(rows),
        classes_(static_cast<size_t>(rows == Rows::kBinary ? 2 : params.width)),
        counted_(params.target_classes.begin(), params.target_classes.end()),
        counts_(classes_ * classes_) {
    if (!counted_.empty()) return;
    counted_.resize(classes_);
    std::iota(counted_.begin(), counted_.end(), size_t{0});
  }

  void Update(absl::Span<const float> outputs, absl::Span<const float> targets,
              absl::Span<const float> weights) override {
    const size_t width = rows_ == Rows::kBinary ? 1 : classes_, rows = outputs.size() / width;
    const size_t rows_per_example = static_cast<size_t>(params_.rows_per_example * params_.width) / width;
    const auto threshold = static_cast<float>(params_.threshold);
    const bool shares = rows_ == Rows::kClasses && targets.size() == outputs.size();
    for (size_t row = 0; row < rows; ++row) {
      if (!shares && !(targets[row] >= 0)) continue;  // as in Keras
      const size_t label =
          shares ? IndexOfLargest(targets.subspan(row * width, width)) : static_cast<size_t>(targets[row]);
      const size_t predicted = rows_ == Rows::kBinary ? (outputs[row] >= threshold ? 1 : 0)
                                                      : IndexOfLargest(outputs.subspan(row * width, width));
      if (label >= classes_ || static_cast<int64_t>(label) == params_.ignored_class) continue;
      counts_[label * classes_ + predicted] +=
          weights.empty() ? 1.0 : double{weights[row / rows_per_example]};
    }
  }
  double Result() const override {
    double sum = 0;
    int occurring = 0;
    for (const size_t kind : counted_) {
      double either = -counts_[kind * classes_ + kind];
      for (size_t other = 0; other < classes_; ++other)
        either += counts_[kind * classes_ + other] + counts_[other * classes_ + kind];
      if (either <= 1e-9) continue;
      sum += counts_[kind * classes_ + kind] / either;
      ++occurring;
    }
    return Ratio(sum, occurring);
  }
  void Reset() override { std::fill(counts_.begin(), counts_.end(), 0.0); }

 private:
  const MetricParams params_;
  const Rows rows_;
  const size_t classes_;
  std::vector<size_t> counted_;  // the classes whose mean is the result
  std::vector<double> counts_;   // [label, prediction]
};

}  // namespace

std::unique_ptr<Metric> MakeIou(const MetricParams& params) {
  return std::make_unique<IntersectionOverUnion>(params, IntersectionOverUnion::Rows::kClasses);
}
std::unique_ptr<Metric> MakeBinaryIou(const MetricParams& params) {
  return std::make_unique<IntersectionOverUnion>(params, IntersectionOverUnion::Rows::kBinary);
}

}  // namespace cairn::nn
