// Which objects of a model file are of Keras itself: a class of somebody's own may have the name of one of
// Keras' and do something else.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"

namespace cairn::nn {

// INVALID_ARGUMENT naming the module, or the name it was registered under, where `object`'s "module" or
// "registered_name" is not Keras'. What does not say is taken for Keras'.
absl::Status CheckIsOfKeras(const nlohmann::json& object);

// Whether `object` is one of Keras' functions (`a + b` of two tensors) that stands in place of a layer.
bool IsKerasFunction(const nlohmann::json& object);

}  // namespace cairn::nn
