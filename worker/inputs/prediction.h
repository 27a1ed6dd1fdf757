// The outputs of a trained model for given examples, and, if targets are known, loss and metrics as computed
// by the evaluation during training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/row_source.h"
#include "data/targets.h"
#include "nn/loss.h"
#include "nn/metrics.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "worker/embedding/trained_tables.h"

namespace cairn::worker {

struct PredictionRequest {
  const nn::Model& model;
  absl::Span<const float> parameters;     // in the flat order of the model, without `tables`
  const TrainedTables* tables = nullptr;  // of the model; null: it has none beside its variables
  const data::RowSource& inputs;          // each row has the inputs of one example
  int64_t limit = 0;                      // use only the first N rows; 0: all
  // The targets of each row, which need an objective. Null: they are unknown, and `objective` and `metrics` are
  // ignored.
  const data::Targets* targets = nullptr;
  std::optional<nn::Objective> objective{};
  absl::Span<const nn::MetricSpec> metrics{};
  int threads = 1;
};

struct Prediction {
  int64_t examples = 0;
  std::vector<float> outputs;  // [examples, the model's output_shape], row-major
  nn::MetricValues metrics;    // including "loss"; empty without targets
};

// Computes on the CPU, in batches. The calling thread blocks until all outputs are computed. INVALID_ARGUMENT
// if inputs or targets do not fit the model or the loss.
absl::StatusOr<Prediction> Predict(const PredictionRequest& request);

// "the outputs of 1 of 8 examples are not finite numbers: 5 (input 3 is nan)": names the examples and, for
// each example, the input that is not finite, if there is such an input. Empty if all outputs are finite.
// `inputs`: the inputs of the request.
std::string NonFiniteOutputs(const Prediction& prediction, const data::RowSource& inputs);

// Converts outputs for display, in place: to probabilities if the loss is a cross entropy from logits
// (softmax over the last axis, or a sigmoid of each output for binary cross entropy); else unchanged.
// `outputs` [rows, width].
void ToProbabilities(const nn::LossSpec& loss, int64_t width, absl::Span<float> outputs);

}  // namespace cairn::worker
