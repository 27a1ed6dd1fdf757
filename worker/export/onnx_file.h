// A model and its values as an .onnx file for inference: opset 17, any batch size, inputs and output in
// Keras' shapes (images channels last), initializers under Keras' names of the variables. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nn/model.h"
#include "worker/embedding/trained_tables.h"

namespace cairn::worker {

// FAILED_PRECONDITION if a model of so many values would exceed 2 GiB, protobuf's limit.
absl::Status CheckOnnxSize(int64_t values);

// The contents of the file. `parameters` are in the flat order of the model, without `tables` if there are any;
// `metadata` is written unchanged. An id without a row in a dynamic table gets the mean of the first values.
// UNIMPLEMENTED naming the layer that ONNX's operators cannot express; FAILED_PRECONDITION if the file would exceed
// 2 GiB, protobuf's limit.
absl::StatusOr<std::string> OnnxFile(const nn::Model& model, absl::Span<const float> parameters,
                                     const std::map<std::string, std::string>& metadata,
                                     const TrainedTables* tables = nullptr);

}  // namespace cairn::worker
