// One number over many examples, gathered batch by batch, and the makers of all of them. One thread.
//
// To add a metric: its maker in one of the files here, a row in metrics.cc.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/types/span.h"

namespace cairn::nn {

// Which of two values is the better one.
enum class Better { kHigher, kLower };

// The outputs' extents, and Keras' options with Keras' defaults.
struct MetricParams {
  int64_t rows_per_example = 1;  // outputs are [examples, rows_per_example, width]
  int64_t width = 1;
  double threshold = 0.5;         // above it a prediction is positive
  int64_t k = 5;                  // of the top-k accuracies
  int64_t num_thresholds = 200;   // AUC, at least 2
  bool precision_recall = false;  // AUC: of that curve, not of the ROC
  bool from_logits = false;       // AUC: outputs go through a sigmoid
};

class Metric {
 public:
  virtual ~Metric() = default;
  // `outputs` [examples, rows_per_example, width], row-major. `targets` as the loss took them: class indices
  // [examples, rows_per_example], each in [0, width), or of the outputs' shape. `weights` [examples]; empty
  // where every example weighs 1.
  virtual void Update(absl::Span<const float> outputs, absl::Span<const float> targets,
                      absl::Span<const float> weights) = 0;
  // 0 where nothing has weight.
  virtual double Result() const = 0;
  virtual void Reset() = 0;
};

using MetricMaker = std::unique_ptr<Metric> (*)(const MetricParams& params);

// accuracy.cc
std::unique_ptr<Metric> MakeSparseCategoricalAccuracy(const MetricParams& params);
std::unique_ptr<Metric> MakeCategoricalAccuracy(const MetricParams& params);
std::unique_ptr<Metric> MakeBinaryAccuracy(const MetricParams& params);
std::unique_ptr<Metric> MakeSparseTopKCategoricalAccuracy(const MetricParams& params);
std::unique_ptr<Metric> MakeTopKCategoricalAccuracy(const MetricParams& params);
// error.cc
std::unique_ptr<Metric> MakeMeanSquaredError(const MetricParams& params);
std::unique_ptr<Metric> MakeMeanAbsoluteError(const MetricParams& params);
std::unique_ptr<Metric> MakeRootMeanSquaredError(const MetricParams& params);
// confusion.cc
std::unique_ptr<Metric> MakePrecision(const MetricParams& params);
std::unique_ptr<Metric> MakeRecall(const MetricParams& params);
std::unique_ptr<Metric> MakeAuc(const MetricParams& params);
std::unique_ptr<Metric> MakeTruePositives(const MetricParams& params);
std::unique_ptr<Metric> MakeTrueNegatives(const MetricParams& params);
std::unique_ptr<Metric> MakeFalsePositives(const MetricParams& params);
std::unique_ptr<Metric> MakeFalseNegatives(const MetricParams& params);

}  // namespace cairn::nn
