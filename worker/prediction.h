// What a trained model makes of examples: its outputs, and, where targets are known, loss and metrics, as the
// evaluation in training has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/row_source.h"
#include "worker/data/targets.h"
#include "worker/nn/loss.h"
#include "worker/nn/metrics.h"
#include "worker/nn/model.h"

namespace cairn::worker {

struct PredictionRequest {
  const nn::Model& model;
  absl::Span<const float> parameters;  // in the model's flat order
  const data::RowSource& inputs;       // rows of as many numbers as the model takes
  int64_t limit = 0;                   // the first so many rows; 0: all
  const data::Targets* targets =
      nullptr;  // of as many rows; null: unknown, and loss and metrics are not looked at
  nn::LossSpec loss{};
  absl::Span<const nn::MetricSpec> metrics{};
  int threads = 1;
};

struct Prediction {
  int64_t examples = 0;
  std::vector<float> outputs;  // [examples, the model's output_shape], row-major
  nn::MetricValues metrics;    // with "loss"; empty without targets
};

// On the CPU, in batches. One thread calls; blocks until all is computed. INVALID_ARGUMENT where inputs or
// targets do not fit the model or the loss.
absl::StatusOr<Prediction> Predict(const PredictionRequest& request);

// "the outputs of 1 of 8 examples are not finite numbers: 5 (input 3 is nan)": which, and whether the input
// of each is at fault. Empty where all outputs are finite. `inputs` as in the request.
std::string NonFiniteOutputs(const Prediction& prediction, const data::RowSource& inputs);

// Outputs as a person reads them: probabilities where the loss is a cross entropy from logits, over the last
// axis or, for a binary one, each by itself; else as they are. `outputs` [rows, width], changed in place.
void ToProbabilities(const nn::LossSpec& loss, int64_t width, absl::Span<float> outputs);

}  // namespace cairn::worker
