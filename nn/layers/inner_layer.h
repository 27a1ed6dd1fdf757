// The layer within a layer such as Bidirectional or TimeDistributed, as Keras writes it: an object with class_name and
// config.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

using InnerLayerMaker = std::unique_ptr<Layer> (*)(std::string name, ConfigReader& config);

// Reads `field` of `outer`. `find` gives the maker of a class, or null. Returns null, after a failure of `outer`, if
// the field is absent or its class is not found.
std::unique_ptr<Layer> ReadInnerLayer(absl::string_view field, ConfigReader& outer,
                                      InnerLayerMaker (*find)(absl::string_view class_name));

}  // namespace cairn::nn
