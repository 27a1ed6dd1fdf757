// The input shape of a model, from an InputLayer or from a first layer. An InputLayer computes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/core/shape.h"
#include "nn/layer/config_reader.h"

namespace cairn::nn {

// A shape without the batch, some of whose sizes may be any.
using OpenShape = std::vector<std::optional<int64_t>>;

// "[null,28,1]"
std::string ToString(const OpenShape& shape);
// All sizes must be known.
Shape ToShape(const OpenShape& shape);
// Whether `shape` has the sizes that `open` knows, and as many axes.
bool Fits(const Shape& shape, const OpenShape& open);

// These functions read a shape without its batch axis: [null, 28, 28, 1] becomes [28, 28, 1]. Errors go to `config`,
// also for a size that is null unless `open`.

// Reads it from `field`, where it has a batch axis.
OpenShape ReadBatchShape(absl::string_view field, bool open, ConfigReader& config);

// Reads the config of an InputLayer. Keras 3 writes batch_shape, Keras 2 batch_input_shape, users write
// shape.
OpenShape ReadInputLayer(bool open, ConfigReader& config);

// The same for one with `ragged`, which is already read: [null, null], an axis that varies. Returns [1].
OpenShape ReadRaggedInputLayer(ConfigReader& config);

// True if a layer other than InputLayer gives the model's input shape: batch_shape, batch_input_shape or
// input_shape (without the batch).
bool HasInputShape(ConfigReader& config);
OpenShape ReadInputShape(bool open, ConfigReader& config);

}  // namespace cairn::nn
