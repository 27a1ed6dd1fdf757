// The inputs of a job: model, loss, metrics and data, loaded and checked against each other.
//
// `cairn train` loads them before it starts any task, and every worker loads them again, so that both report
// a fault in the same words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/input_rows.h"
#include "data/length_buckets.h"
#include "data/row_source.h"
#include "nn/input_sizes.h"
#include "nn/metrics.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "worker/embedding/table_plan.h"
#include "worker/export/data_record.h"
#include "worker/options/options.h"

namespace cairn::worker {

struct Inputs {
  nn::Model model;  // as described
  nn::Objective objective;
  std::vector<nn::MetricSpec> metrics;
  data::TrainingData data;
  // The record of the data for --train_dir and --export_dir; its directory is not set.
  DataRecord record;
  std::optional<TablePlan> tables{};  // with --embedding_tables
  // With --bucket_boundaries. The second one only if there is a validation set.
  std::optional<data::LengthBuckets> train_buckets{}, validation_buckets{};

  // The model whose variables the job trains: `model` without its embedding tables.
  const nn::Model& trained() const { return tables.has_value() ? tables->model.model : model; }
};

// Sizes of the inputs that a model file leaves open, as ReadModel() fixes them. Refers to `options`.
nn::InputSizes InputSizesOf(const TrainOptions& options);

// The model of `options`. Sizes of its inputs that the file leaves open are those of --input_shape, or else, for a
// model with one input, of the examples in the data. Blocks on the disk.
absl::StatusOr<nn::Model> ReadModel(const TrainOptions& options);

// The options for reading the training data of `options` for `model`.
data::DataOptions DataOptionsOf(const TrainOptions& options, const nn::Model& model);

// The targets of each output with a loss, if the model has several outputs; else empty.
std::vector<data::TargetPart> TargetPartsOf(const nn::Objective& objective, const nn::Model& model);

// How the reader of the data makes ids of the values of inputs, one line for each map of the model: "input 'city':
// layer 'cities' (StringLookup) makes ids of strings: a vocabulary of 4 strings, 1 id for other values".
std::vector<std::string> DescribeIds(const nn::Model& model);

// How the model takes the inputs of one example of `rows`, which must have the model's ragged inputs.
std::vector<data::InputSpec> InputSpecsOf(const nn::Model& model, const data::RowSource& rows);

// Blocks on the disk. An error names the file or the flag that the user must change.
absl::StatusOr<Inputs> LoadInputs(const TrainOptions& options);

}  // namespace cairn::worker
