// Writes a trained model to files for other programs. Any thread; blocks while the disk writes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "nn/model.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/embedding/table_rows.h"

namespace cairn::worker {

// All variables under Keras' names, in the order of the names. The values are borrowed from `parameters`,
// which are in the model's flat order.
std::vector<NamedTensor> TensorsOf(const nn::Model& model, absl::Span<const float> parameters);

// INVALID_ARGUMENT unless `path` has an ending that WriteModelFile() supports, and can be written.
absl::Status CheckModelFile(const std::string& path);

// Writes the format that the ending of `path` selects: .onnx, or .safetensors, which contains only the
// values, in Keras' layouts. With `tables`, the parameters are those of the model without them; a table is written as
// a variable, or, if it takes any id, as docs/reference/file-formats.md describes. An .onnx file, of at most 2 GiB, is
// made in memory; a .safetensors file takes the rows of tables in batches. Replaces the file atomically; errors name
// the path. A model that ONNX cannot express gives OnnxFile()'s error.
absl::Status WriteModelFile(const std::string& path, const nn::Model& model,
                            absl::Span<const float> parameters,
                            const std::map<std::string, std::string>& metadata,
                            const TableRows* tables = nullptr);

// Creates `directory`. INVALID_ARGUMENT if that fails, or if the directory is not writable.
absl::Status PrepareModelDirectory(const std::string& directory);
// Writes model.json (Keras' description), model.safetensors and model.onnx, and returns these names. Logs that a model
// is too large for an .onnx file, and leaves it out.
absl::StatusOr<std::vector<std::string>> WriteModelDirectory(
    const std::string& directory, const nn::Model& model, absl::Span<const float> parameters,
    const std::map<std::string, std::string>& metadata, const TableRows* tables = nullptr);

}  // namespace cairn::worker
