// What a person watches beside the loss: Keras' metrics, by its names and with its numbers.
//
// A MetricSet is made per pass over examples: the trainer's runs over an epoch, the evaluator's over the
// whole validation set. It is computed on the host, in double, in one thread; the order of the examples
// changes a sum's rounding and nothing else.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "worker/nn/batch.h"
#include "worker/nn/compile_config.h"
#include "worker/nn/loss.h"
#include "worker/nn/metrics/metric.h"

namespace cairn::nn {

struct MetricSpec {
  std::string name{};     // as shown: "accuracy", "top_k_categorical_accuracy"
  bool weighted = false;  // false, for all of compile's `metrics`: the examples' weights are ignored
  MetricMaker make = nullptr;
  MetricParams params{};
  Better better = Better::kHigher;  // what training is after, as Keras' callbacks decide it
};

// Without any compiled metrics a classification has "accuracy". That one ("accuracy" or "acc") is Keras'
// binary, sparse categorical or categorical accuracy, as the loss' targets and the output's width decide. A
// name that is taken gets Keras' suffix or prefix: auc_1, weighted_auc. INVALID_ARGUMENT naming the metric:
// unknown, with the supported ones; with an option that Keras' has and this one lacks; or one that does not
// fit the targets of `loss`. `output` is the model's, without the batch.
absl::StatusOr<std::vector<MetricSpec>> ParseMetrics(absl::Span<const CompiledMetric> compiled,
                                                     const LossSpec& loss, const Shape& output);

// Names and values in the order in which Keras shows them, that of the alphabet.
using MetricValues = std::vector<std::pair<std::string, double>>;

class MetricSet {
 public:
  explicit MetricSet(absl::Span<const MetricSpec> specs);

  // `batch` and `result` as a Replica took and gave them.
  void Update(const BatchView& batch, const BatchResult& result);
  // Of everything since the last Reset(): the metrics, and "loss", the mean over the examples of weight times
  // loss. Without examples the loss is NaN and the metrics are 0, as Keras has them.
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
