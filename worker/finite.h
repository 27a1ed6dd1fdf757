// Where numbers that are not finite come from: values that a job begins with are checked, and a loss that is
// not finite is traced to the data, the parameters or the step. Functions of their arguments alone; any
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/nn/batch.h"
#include "worker/nn/model.h"

namespace cairn::worker {

// OUT_OF_RANGE (exit code 1) naming `source`, the variable, the first value that is NaN or infinite, and its
// place: "weights.safetensors: 'dense/bias'[3] is nan". `parameters` in the model's flat order.
absl::Status CheckFinite(const nn::Model& model, absl::Span<const float> parameters,
                         absl::string_view source);

// A step whose loss is NaN or infinite.
struct NonFiniteStep {
  const nn::Model& model;
  absl::Span<const float> parameters;  // that it began with, in the model's flat order
  const nn::BatchView& batch;
  absl::Span<const uint32_t> rows;  // [examples] places in the data set
  absl::string_view data;           // where the data set is
  std::string layer;                // the first one whose output is not finite; empty: none, or unknown
};

// Which of them is at fault, with what a user needs to find it: the example and its value, else the variable
// and its value, else the layer that overflowed and the largest parameter.
std::string Explain(const NonFiniteStep& step);

}  // namespace cairn::worker
