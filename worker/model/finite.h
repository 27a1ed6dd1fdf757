// Finds the source of numbers that are not finite: checks the initial values of a job, and traces a loss that
// is not finite to the data, the parameters or the step. The functions depend only on their arguments; any
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "nn/batch.h"
#include "nn/model.h"

namespace cairn::worker {

// OUT_OF_RANGE (exit code 1) naming `source`, the variable, the first value that is NaN or infinite, and its
// position: "weights.safetensors: 'dense/bias'[3] is nan". `parameters` are in the model's flat order.
absl::Status CheckFinite(const nn::Model& model, absl::Span<const float> parameters,
                         absl::string_view source);

// A step whose loss is NaN or infinite.
struct NonFiniteStep {
  const nn::Model& model;
  absl::Span<const float> parameters;  // at the start of the step, in the model's flat order
  const nn::BatchView& batch;
  absl::Span<const uint32_t> rows;  // [examples] indices in the data set
  absl::string_view data;           // the path of the data set
  std::string layer;                // the first layer whose output is not finite; empty: none, or unknown
};

// Names the cause of the non-finite loss with the facts that locate it: the example and its value, else the
// variable and its value, else the example whose steps are all masked before a mean over them, else the layer that
// overflowed and the largest parameter.
std::string Explain(const NonFiniteStep& step);

}  // namespace cairn::worker
