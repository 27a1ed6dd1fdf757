// A trained model as the files that other programs load. Any thread; blocks while the disk writes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/nn/model.h"

namespace cairn::worker {

// All variables under Keras' names, in the order of these; values borrowed from `parameters`, which is in the
// model's flat order.
std::vector<NamedTensor> TensorsOf(const nn::Model& model, absl::Span<const float> parameters);

// INVALID_ARGUMENT unless `path` ends as a format that WriteModelFile() knows, and can be written.
absl::Status CheckModelFile(const std::string& path);

// By its ending: .onnx, or .safetensors, which has the values in Keras' layouts alone. Atomically; errors
// name the path. What the model cannot be expressed in is OnnxFile()'s error.
absl::Status WriteModelFile(const std::string& path, const nn::Model& model,
                            absl::Span<const float> parameters,
                            const std::map<std::string, std::string>& metadata);

// Makes `directory`. INVALID_ARGUMENT where that fails, or where nothing can be written there.
absl::Status PrepareModelDirectory(const std::string& directory);
// model.json, Keras' description; model.safetensors; model.onnx.
absl::Status WriteModelDirectory(const std::string& directory, const nn::Model& model,
                                 absl::Span<const float> parameters,
                                 const std::map<std::string, std::string>& metadata);

}  // namespace cairn::worker
