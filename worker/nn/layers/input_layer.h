// InputLayer, or the shape that a first layer gives instead: it computes nothing.
#pragma once

#include "absl/strings/string_view.h"
#include "common/core/shape.h"
#include "worker/nn/config_reader.h"

namespace cairn::nn {

// [null, 28, 28, 1] without the batch: [28, 28, 1]. A fault of `value` goes to `config` under `field`.
Shape ReadBatchShape(absl::string_view field, ConfigReader& config);

// The config of an InputLayer. Keras 3 says batch_shape, Keras 2 batch_input_shape, people write shape.
Shape ReadInputLayer(ConfigReader& config);

// True where a layer other than InputLayer gives the model's input shape: batch_shape, batch_input_shape or
// input_shape (without the batch).
bool HasInputShape(ConfigReader& config);
Shape ReadInputShape(ConfigReader& config);

}  // namespace cairn::nn
