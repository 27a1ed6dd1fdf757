// Arguments of functions of keras.ops that are not tensors, but that Keras 3 writes beside tensors into a call: the
// index of `x[:, 0]`, the begin of a slice, and absent tensors.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"

namespace cairn::nn {

// Moves the index of a GetItem into its config, as `index`, and the begin of a Slice, as `start_indices`. Removes the
// nulls of a LayerNorm or RMSNorm without variables. Calls of these functions then name tensors only. Leaves other
// entries as they are. INVALID_ARGUMENT for a GetItem or Slice that does not have one call with such an argument.
absl::Status TakeIndex(nlohmann::json& layer);

}  // namespace cairn::nn
