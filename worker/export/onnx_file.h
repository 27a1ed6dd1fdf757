// A model with its values as an .onnx file for inference: opset 17, any batch size, inputs and output in
// Keras' shapes (images channels last), initializers under Keras' names of the variables. Any thread.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/nn/model.h"

namespace cairn::worker {

// The file's bytes. `parameters` in the model's flat order [num_parameters()]; `metadata` goes into it as it
// is. UNIMPLEMENTED naming the layer that ONNX's operations do not express; FAILED_PRECONDITION for more than
// the 2 GiB that a protobuf may have.
absl::StatusOr<std::string> OnnxFile(const nn::Model& model, absl::Span<const float> parameters,
                                     const std::map<std::string, std::string>& metadata);

}  // namespace cairn::worker
