// Which layers may read which inputs of a model.
#pragma once

#include "absl/status/status.h"
#include "nn/model.h"

namespace cairn::nn {

// INVALID_ARGUMENT naming the input and the layer if an input of strings, or a ragged one, has a use that is not
// supported.
absl::Status CheckInputUses(const Model& model);

}  // namespace cairn::nn
