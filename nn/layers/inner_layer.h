// The layer within a layer such as Bidirectional or TimeDistributed, as Keras writes it: an object with class_name and
// config.
#pragma once

#include <memory>

#include "absl/strings/string_view.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

// Reads `field` of `outer`. Null, after a failure of `outer`, if it is absent or is no layer that this program has.
std::unique_ptr<Layer> ReadInnerLayer(absl::string_view field, ConfigReader& outer);

}  // namespace cairn::nn
