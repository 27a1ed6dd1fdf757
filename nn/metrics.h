// Keras' metrics, with its names and numbers: what users watch in addition to the loss.
//
// A MetricSet covers one pass over examples: an epoch in the trainer, the whole validation set in the
// evaluator. It computes on the host, in double, in one thread. The order of the examples affects only the
// rounding of sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
#include "nn/model.h"
#include "nn/objective.h"

namespace cairn::nn {

// Numbers of each example that belong to one output of a model; `count` 0: all of them.
struct Columns {
  int64_t first = 0, count = 0;
  friend bool operator==(const Columns&, const Columns&) = default;
};

// Rows that the loss, and so each metric, leaves out. Each remaining row counts as one example.
struct LeftOutRows {
  int64_t rows_per_example = 1;
  std::optional<int64_t>
      first_mask{};              // the place in its outputs of a number for each row, 0 for those left out
  std::optional<float> label{};  // the target of rows that are left out

  friend bool operator==(const LeftOutRows&, const LeftOutRows&) = default;
};

// The places of the numbers that a metric reads in the outputs, targets and weights of an example.
struct MetricPlaces {
  int64_t outputs_per_example = 0;  // of all outputs, and their masks
  Columns outputs{}, targets{}, weights{};
  std::optional<LeftOutRows> left_out{};
  friend bool operator==(const MetricPlaces&, const MetricPlaces&) = default;
};

struct MetricSpec {
  std::string name{};  // displayed name: "accuracy", "top_k_categorical_accuracy"
  // False if the examples' weights are ignored, as for all of compile()'s `metrics`.
  bool weighted = false;
  MetricMaker make = nullptr;
  MetricParams params{};
  // Which direction is an improvement, as Keras' callbacks decide it.
  Better better = Better::kHigher;
  MetricPlaces places{};
  std::vector<MetricPlaces> shorter{};  // [Model::shorter()]
  // Without `make`: the mean of this loss of the objective.
  size_t loss = 0;
};

// Without compiled metrics, a classification has "accuracy". "accuracy" or "acc" means Keras' binary, sparse
// categorical or categorical accuracy, depending on the loss' targets and the output's width. A name that is
// taken gets Keras' suffix or prefix: auc_1, weighted_auc. `output` is the model's output shape, without the
// batch. INVALID_ARGUMENT naming the metric if it is unknown (the message lists the supported ones), has an
// unsupported option of Keras, or does not fit the targets of `loss`.
absl::StatusOr<std::vector<MetricSpec>> ParseMetrics(absl::Span<const CompiledMetric> compiled,
                                                     const LossSpec& loss, const Shape& output);

// The metrics of all outputs of `model`. If it has several, the names begin with that of the output, and each loss is a
// metric: a_loss, a_accuracy, b_loss.
absl::StatusOr<std::vector<MetricSpec>> MetricsOf(absl::Span<const CompiledMetric> compiled,
                                                  const Objective& objective, const Model& model);

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
  struct Arguments {  // of a metric
    absl::Span<const float> outputs, targets, weights;
  };
  // Those of a metric, and of the rows of `from` that are not left out; in memory of this object, valid until the next
  // call. `outputs` and `all_outputs`: those of the model.
  Arguments ArgumentsOf(const MetricPlaces& places, const BatchView& batch, absl::Span<const float> outputs);
  Arguments KeepRows(const LeftOutRows& left_out, int64_t examples, absl::Span<const float> all_outputs,
                     const Arguments& from);

  struct Entry {
    MetricSpec spec;
    std::unique_ptr<Metric> metric;  // null for a loss
  };
  std::vector<Entry> entries_;
  LossTotals loss_;
  // The arguments of the metric that is updated: its columns, and the rows of these that are not left out.
  std::vector<float> outputs_, targets_, weights_, kept_outputs_, kept_targets_, kept_weights_;
};

}  // namespace cairn::nn
