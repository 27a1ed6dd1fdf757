// Penalties on the output of a layer (Keras' activity_regularizer), as a layer that passes its input on.
#pragma once

#include <memory>
#include <string>

#include "nn/layer/layer.h"

namespace cairn::nn {

// The layer that follows a layer with an activity_regularizer and has its name.
std::unique_ptr<Layer> MakeActivityPenalty(std::string name, const RegularizerSpec& penalty);

}  // namespace cairn::nn
