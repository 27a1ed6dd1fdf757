// Keras' metrics, with its names and numbers: what users watch in addition to the loss.
//
// A MetricSet covers one pass over examples: an epoch in the trainer, the whole validation set in the
// evaluator. It computes on the host, in double, in one thread. The order of the examples affects only the
// rounding of sums.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "nn/batch.h"
#include "nn/layer/compile_config.h"
#include "nn/loss.h"
#include "nn/metrics/metric.h"

namespace cairn::nn {

struct MetricSpec {
  std::string name{};  // displayed name: "accuracy", "top_k_categorical_accuracy"
  // False if the examples' weights are ignored, as for all of compile()'s `metrics`.
  bool weighted = false;
  MetricMaker make = nullptr;
  MetricParams params{};
  // Which direction is an improvement, as Keras' callbacks decide it.
  Better better = Better::kHigher;
};

// Without compiled metrics, a classification has "accuracy". "accuracy" or "acc" means Keras' binary, sparse
// categorical or categorical accuracy, depending on the loss' targets and the output's width. A name that is
// taken gets Keras' suffix or prefix: auc_1, weighted_auc. `output` is the model's output shape, without the
// batch. INVALID_ARGUMENT naming the metric if it is unknown (the message lists the supported ones), has an
// unsupported option of Keras, or does not fit the targets of `loss`.
absl::StatusOr<std::vector<MetricSpec>> ParseMetrics(absl::Span<const CompiledMetric> compiled,
                                                     const LossSpec& loss, const Shape& output);

// Names and values in Keras' order, which is alphabetical.
using MetricValues = std::vector<std::pair<std::string, double>>;

class MetricSet {
 public:
  explicit MetricSet(absl::Span<const MetricSpec> specs);

  // `batch` and `result` are the argument and the result of a Replica.
  void Update(const BatchView& batch, const BatchResult& result);
  // Values since the last Reset(): the metrics, and "loss", the mean over the examples of weight times loss.
  // Without examples the loss is NaN and the metrics are 0, as in Keras.
  MetricValues Values() const;
  void Reset();

 private:
  struct Entry {
    std::string name;
    bool weighted;
    std::unique_ptr<Metric> metric;
  };
  std::vector<Entry> entries_;
  kernels::LossSums loss_;
};

}  // namespace cairn::nn
