// Arithmetic with a number or an array, such as `x + 3.0` or `x > 0`, which Keras 3 writes as a function of keras.ops
// that has the number among its arguments.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"

namespace cairn::nn {

// Moves the number of such a function into its config, as `number` and `number_is_first`, or an array of numbers as
// `constant`: its calls then name tensors only. The numbers, booleans and arrays of a function that TakesConstants()
// become `constants`, [[argument, constant], ...]. Leaves other entries as they are. INVALID_ARGUMENT if calls of one
// function have different numbers, and for a function of booleans that Keras computes by logical operations.
absl::Status TakeNumber(nlohmann::json& layer);

}  // namespace cairn::nn
