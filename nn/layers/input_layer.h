// The input shape of a model, from an InputLayer or from a first layer. An InputLayer computes nothing.
#pragma once

#include "absl/strings/string_view.h"
#include "common/core/shape.h"
#include "nn/layer/config_reader.h"

namespace cairn::nn {

// Reads a shape with a batch axis from `field` and returns it without that axis: [null, 28, 28, 1] becomes
// [28, 28, 1]. Errors go to `config`.
Shape ReadBatchShape(absl::string_view field, ConfigReader& config);

// Reads the config of an InputLayer. Keras 3 writes batch_shape, Keras 2 batch_input_shape, users write
// shape.
Shape ReadInputLayer(ConfigReader& config);

// The same for one with `ragged`, which is already read: [null, null], an axis that varies. Returns [1].
Shape ReadRaggedInputLayer(ConfigReader& config);

// True if a layer other than InputLayer gives the model's input shape: batch_shape, batch_input_shape or
// input_shape (without the batch).
bool HasInputShape(ConfigReader& config);
Shape ReadInputShape(ConfigReader& config);

}  // namespace cairn::nn
