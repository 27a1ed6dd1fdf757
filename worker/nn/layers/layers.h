// The makers of all layers, one per source file. Names, `trainable` and `dtype`, which every layer has, are
// read before a maker is called.
#pragma once

#include <memory>
#include <string>

#include "worker/nn/config_reader.h"
#include "worker/nn/layer.h"

namespace cairn::nn {

std::unique_ptr<Layer> MakeConv2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeDense(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeFlatten(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeMaxPooling2D(std::string name, ConfigReader& config);

}  // namespace cairn::nn
