// Arithmetic with a number, such as `x + 3.0`, which Keras 3 writes as a function of keras.ops that has the number
// among its arguments.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"

namespace cairn::nn {

// Rewrites the entry of such a function as a Rescaling: its calls then name tensors only. Leaves other entries, and
// arithmetic that no Rescaling computes (`1.0 / x`), as they are. INVALID_ARGUMENT for a division by 0.
absl::Status ReplaceNumbers(nlohmann::json& layer);

}  // namespace cairn::nn
