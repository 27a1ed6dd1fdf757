// The table of layers: Keras' names for them, and the functions that read their config.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

// Reads the fields of one class of layer. Errors are recorded in `config`; the caller of the maker calls
// Finish().
using LayerMaker = std::unique_ptr<Layer> (*)(std::string name, ConfigReader& config);

// Null if there is no such layer.
LayerMaker FindLayer(absl::string_view class_name);

// How a layer that reads an input of the model takes byte values.
enum class ByteUse {
  kScaled,  // expects them divided by 255, as numbers of about 1: layers with weights
  kRaw,     // expects 0 to 255: it scales them itself, or they are indices
  kPasses,  // has no scale of its own: the next layers decide
};
ByteUse ByteUseOf(absl::string_view class_name);

// Whether the layer gives its input another shape, or another type of integers, and leaves ids as they are.
bool OnlyReshapes(absl::string_view class_name);

// Whether the layer, if it takes integers, compares them, and does not look them up.
bool ComparesValues(absl::string_view class_name);

// Layers of ids compute with integers, and Keras writes the type of their output or of their vocabulary.
bool ComputesIds(absl::string_view class_name);

// "Conv2D, Dense, ...", without those of keras_hub.
std::string SupportedLayers();

}  // namespace cairn::nn
