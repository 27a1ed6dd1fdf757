// `x[:, 3]` of a sequence: one of its steps. Keras 3 writes it as the function GetItem.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"

namespace cairn::nn {

// Rewrites the JSON of such a GetItem to a layer SelectStep, whose class is not one of Keras. Leaves other layers
// unchanged. INVALID_ARGUMENT for a GetItem of anything else.
absl::Status ReplaceGetItem(nlohmann::json& layer);

}  // namespace cairn::nn
