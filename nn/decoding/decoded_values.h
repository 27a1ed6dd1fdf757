// Which values of a model have the steps of a sequence, so that the sequence can be decoded step by step.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nn/layer/decoding.h"
#include "nn/model.h"

namespace cairn::nn {

struct DecodedValues {
  int output = 0;  // the node of the model's only output, before nodes that join a mask to it
  std::vector<DecodedInput> inputs;  // [input of the model]
  std::vector<DecodedInput> nodes;   // [node of the model]
  std::vector<StepUse> uses;         // [node] of those with kSteps
  std::vector<bool> needed;          // [node] whether the output depends on it

  // `value` is in the numbering of Node::inputs.
  DecodedInput Of(int value) const;
};

// `inputs`: what the model's inputs are. UNIMPLEMENTED, naming the layer, if its output at a step may depend on later
// steps, or on others in a way that is not decoded; INVALID_ARGUMENT if the model has several outputs, or its output no
// steps.
absl::StatusOr<DecodedValues> ValuesOfSteps(const Model& model, absl::Span<const DecodedInput> inputs);

}  // namespace cairn::nn
