// A metric: one number over many examples, accumulated batch by batch. This header declares the makers of all
// metrics. One thread.
//
// To add a metric, add its maker to one of the files here, and a row to metrics.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"

namespace cairn::nn {

// Which of two values is better.
enum class Better { kHigher, kLower };

// The candidates of a ranked list.
enum class Candidates {
  kOutputs,  // the outputs of a row, with a relevance for each
  kClasses,  // the same, with the index of the only relevant one
  kBatch,  // the items of a batch: outputs are embeddings of a query and its item (LossKind::kInBatchSoftmax)
};

// The outputs' extents, and Keras' options with Keras' defaults.
struct MetricParams {
  int64_t rows_per_example = 1;  // outputs are [examples, rows_per_example, width]
  int64_t width = 1;
  double threshold = 0.5;  // above it a prediction is positive
  int64_t k = 5;           // for the top-k accuracies; HitRate, NDCG: the ranks that count, or 0 for all
  int64_t list_size = 0;   // HitRate, NDCG with a width of 1: adjacent examples that form a list
  Candidates candidates = Candidates::kOutputs;  // HitRate, NDCG
  int64_t num_thresholds = 0;                    // AUC: at least 2, or 0 for every score (the exact area)
  bool precision_recall = false;                 // AUC: of the precision-recall curve, not the ROC curve
  // Outputs are logits: they go through a sigmoid (AUC, BinaryCrossentropy) or a softmax (Perplexity).
  bool from_logits = false;
  int64_t mask_token_id = -1;  // Perplexity: targets that do not count; -1: none
  double label_smoothing = 0;  // BinaryCrossentropy, in [0, 1]
  // Intersections over unions: the number of classes, 0 for that of the outputs; the label of rows that do not count,
  // -1: none; the classes whose mean is the result, empty: all.
  int64_t num_classes = 0;
  int64_t ignored_class = -1;
  std::vector<int64_t> target_classes{};
};

class Metric {
 public:
  virtual ~Metric() = default;
  // `outputs` [examples, rows_per_example, width], row-major. `targets` are those that the loss takes: class
  // indices [examples, rows_per_example], each in [0, width), or an array of the outputs' shape. For items of a
  // batch, class indices [examples] of any size. `weights`
  // [examples]; empty if every example weighs 1.
  virtual void Update(absl::Span<const float> outputs, absl::Span<const float> targets,
                      absl::Span<const float> weights) = 0;
  // 0 if the sum of weights is 0.
  virtual double Result() const = 0;
  virtual void Reset() = 0;
};

using MetricMaker = std::unique_ptr<Metric> (*)(const MetricParams& params);

// Defined in accuracy.cc.
std::unique_ptr<Metric> MakeSparseCategoricalAccuracy(const MetricParams& params);
std::unique_ptr<Metric> MakeCategoricalAccuracy(const MetricParams& params);
std::unique_ptr<Metric> MakeBinaryAccuracy(const MetricParams& params);
std::unique_ptr<Metric> MakeSparseTopKCategoricalAccuracy(const MetricParams& params);
std::unique_ptr<Metric> MakeTopKCategoricalAccuracy(const MetricParams& params);
// Defined in area_under_curve.cc.
std::unique_ptr<Metric> MakeAuc(const MetricParams& params);
// Defined in crossentropy.cc.
std::unique_ptr<Metric> MakeBinaryCrossentropy(const MetricParams& params);
// Defined in error.cc.
std::unique_ptr<Metric> MakeMeanSquaredError(const MetricParams& params);
std::unique_ptr<Metric> MakeMeanAbsoluteError(const MetricParams& params);
std::unique_ptr<Metric> MakeRootMeanSquaredError(const MetricParams& params);
// Defined in intersection.cc.
std::unique_ptr<Metric> MakeIou(const MetricParams& params);
std::unique_ptr<Metric> MakeBinaryIou(const MetricParams& params);
// Defined in perplexity.cc.
std::unique_ptr<Metric> MakePerplexity(const MetricParams& params);
// Defined in ranking.cc.
std::unique_ptr<Metric> MakeHitRate(const MetricParams& params);
std::unique_ptr<Metric> MakeNdcg(const MetricParams& params);
// Defined in confusion.cc.
std::unique_ptr<Metric> MakePrecision(const MetricParams& params);
std::unique_ptr<Metric> MakeRecall(const MetricParams& params);
std::unique_ptr<Metric> MakeTruePositives(const MetricParams& params);
std::unique_ptr<Metric> MakeTrueNegatives(const MetricParams& params);
std::unique_ptr<Metric> MakeFalsePositives(const MetricParams& params);
std::unique_ptr<Metric> MakeFalseNegatives(const MetricParams& params);

}  // namespace cairn::nn
