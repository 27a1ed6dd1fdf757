// A model and its values as an .onnx file for inference: opset 17, any batch size, inputs and output in
// Keras' shapes (images channels last), initializers under Keras' names of the variables. Any thread.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nn/model.h"

namespace cairn::worker {

// The contents of the file. `parameters` are in the model's flat order [num_parameters()]; `metadata` is
// written unchanged. UNIMPLEMENTED naming the layer that ONNX's operators cannot express; FAILED_PRECONDITION
// if the file would exceed 2 GiB, protobuf's limit.
absl::StatusOr<std::string> OnnxFile(const nn::Model& model, absl::Span<const float> parameters,
                                     const std::map<std::string, std::string>& metadata);

}  // namespace cairn::worker
