// Distinguishes Keras' own objects in a model file from custom ones. A custom class may have the name of a
// Keras class and do something else.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"

namespace cairn::nn {

// INVALID_ARGUMENT naming the module or the registered name if `object`'s "module" or "registered_name" is
// not Keras'. An object without them counts as Keras'.
absl::Status CheckIsOfKeras(const nlohmann::json& object);

// Whether `object` is one of Keras' functions (`a + b` of two tensors), used in place of a layer.
bool IsKerasFunction(const nlohmann::json& object);

}  // namespace cairn::nn
