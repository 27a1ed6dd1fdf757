// What training minimises.
#pragma once

#include "absl/status/statusor.h"
#include "worker/nn/compile_config.h"

namespace cairn::nn {

// Keras' SparseCategoricalCrossentropy, reduced to the mean over the batch's examples.
struct LossSpec {
  // False, Keras' default: outputs are probabilities, clipped to [1e-7, 1 - 1e-7]. True: logits.
  bool from_logits = false;
};

// From compile_config's loss, or from KerasObject{name} for a name that a flag gave. INVALID_ARGUMENT for
// another loss, listing the supported ones, and for options that Keras' has and this one lacks.
absl::StatusOr<LossSpec> ParseLoss(const KerasObject& loss);

}  // namespace cairn::nn
