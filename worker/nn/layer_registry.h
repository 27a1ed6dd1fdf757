// The table of layers: what Keras calls them and who reads their config.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/nn/config_reader.h"
#include "worker/nn/layer.h"

namespace cairn::nn {

// Reads the fields of one class of layer; faults go to `config`, which the caller finishes.
using LayerMaker = std::unique_ptr<Layer> (*)(std::string name, ConfigReader& config);

// Null when there is no such layer.
LayerMaker FindLayer(absl::string_view class_name);

// "Conv2D, Dense, ..."
std::string SupportedLayers();

}  // namespace cairn::nn
