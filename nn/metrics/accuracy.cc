// The fraction of predictions that are right (keras/src/metrics/accuracy_metrics.py).
#include <algorithm>
#include <cmath>
#include <limits>

#include "nn/metrics/example_mean.h"
#include "nn/metrics/predictions.h"

namespace cairn::nn {
namespace {

using Row = absl::Span<const float>;

// The fraction of an example's rows whose class is among the `k` largest outputs. `sparse`: targets are class
// indices; otherwise the class is the index of the largest target.
class RowAccuracy final : public ExampleMean {
 public:
  enum class Rule {
    // The prediction is the first of the largest outputs.
    kLargest,
    // Outputs that equal the k-th largest output are all among the `k` largest.
    kTopK,
  };
  RowAccuracy(const MetricParams& params, Rule rule, bool sparse)
      : ExampleMean(params), rule_(rule), sparse_(sparse) {}

 private:
  double OfExample(Row outputs, Row targets) const override {
    const auto width = static_cast<size_t>(params().width);
    const size_t rows = outputs.size() / width;
    size_t right = 0;
    for (size_t row = 0; row < rows; ++row) {
      const size_t label =
          sparse_ ? static_cast<size_t>(targets[row]) : IndexOfLargest(targets.subspan(row * width, width));
      if (IsRight(outputs.subspan(row * width, width), label)) ++right;
    }
    return static_cast<double>(right) / static_cast<double>(rows);
  }

  bool IsRight(Row outputs, size_t label) const {
    if (rule_ == Rule::kLargest) return IsIndexOfLargest(outputs, label);
    // NaN does not count as a large score (JAX' in_top_k).
    const float score = std::isnan(outputs[label]) ? -std::numeric_limits<float>::infinity() : outputs[label];
    return std::count_if(outputs.begin(), outputs.end(), [score](float other) { return other > score; }) <
           params().k;
  }

  const Rule rule_;
  const bool sparse_;
};

class BinaryAccuracy final : public ExampleMean {
 public:
  explicit BinaryAccuracy(const MetricParams& params) : ExampleMean(params) {}

 private:
  double OfExample(Row outputs, Row targets) const override {
    const auto threshold = static_cast<float>(params().threshold);
    int64_t right = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if ((outputs[i] > threshold ? 1.0f : 0.0f) == targets[i]) ++right;
    }
    return static_cast<double>(right) / static_cast<double>(outputs.size());
  }
};

}  // namespace

std::unique_ptr<Metric> MakeSparseCategoricalAccuracy(const MetricParams& params) {
  return std::make_unique<RowAccuracy>(params, RowAccuracy::Rule::kLargest, /*sparse=*/true);
}
std::unique_ptr<Metric> MakeCategoricalAccuracy(const MetricParams& params) {
  return std::make_unique<RowAccuracy>(params, RowAccuracy::Rule::kLargest, /*sparse=*/false);
}
std::unique_ptr<Metric> MakeBinaryAccuracy(const MetricParams& params) {
  return std::make_unique<BinaryAccuracy>(params);
}
std::unique_ptr<Metric> MakeSparseTopKCategoricalAccuracy(const MetricParams& params) {
  return std::make_unique<RowAccuracy>(params, RowAccuracy::Rule::kTopK, /*sparse=*/true);
}
std::unique_ptr<Metric> MakeTopKCategoricalAccuracy(const MetricParams& params) {
  return std::make_unique<RowAccuracy>(params, RowAccuracy::Rule::kTopK, /*sparse=*/false);
}

}  // namespace cairn::nn
