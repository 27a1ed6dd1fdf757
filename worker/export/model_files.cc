#include "worker/export/model_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "worker/export/onnx_file.h"
#include "worker/export/table_files.h"

namespace cairn::worker {

std::vector<NamedTensor> TensorsOf(const nn::Model& model, absl::Span<const float> parameters) {
  std::vector<NamedTensor> tensors;
  for (const nn::ModelVariable& variable : model.variables()) {
    tensors.push_back({variable.name, variable.shape,
                       parameters.subspan(static_cast<size_t>(variable.offset),
                                          static_cast<size_t>(variable.shape.num_elements()))});
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  return tensors;
}

absl::Status CheckModelFile(const std::string& path) {
  if (!absl::EndsWith(path, ".onnx") && !absl::EndsWith(path, ".safetensors")) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' ends in neither .onnx nor .safetensors, the supported formats"));
  }
  const absl::Status status = CheckWritable(path);
  return status.ok() ? status : absl::InvalidArgumentError(status.message());
}

namespace {

absl::Status WriteFormat(const std::string& path, const nn::Model& model, absl::Span<const float> parameters,
                         const std::map<std::string, std::string>& metadata, const TableRows* tables) {
  if (absl::EndsWith(path, ".safetensors")) {
    std::map<std::string, std::string> with_format = metadata;
    with_format["format"] = "pt";  // required by Hugging Face's readers
    if (tables == nullptr) return WriteSafetensors(path, TensorsOf(model, parameters), with_format);
    return WriteWithTables(path, TensorsOf(tables->plan.model.model, parameters), with_format, *tables);
  }
  std::optional<TrainedTables> collected;
  if (tables != nullptr && tables->in_memory == nullptr) {
    // Before the servers copy their tables: the size of those of fixed size is known.
    int64_t values = 0;
    for (const v1::Table& table : tables->plan.tables)
      values += table.embedding().vocabulary_size() * table.row_elements();
    CAIRN_RETURN_IF_ERROR(Annotate(CheckOnnxSize(values), path));
    auto rows = Collect(*tables, &CheckOnnxSize);
    if (!rows.ok()) return Annotate(rows.status(), path);
    collected = *std::move(rows);
  }
  const TrainedTables* in_memory = collected.has_value() ? &*collected : nullptr;
  if (tables != nullptr && tables->in_memory != nullptr) in_memory = tables->in_memory;
  const auto file = OnnxFile(model, parameters, metadata, in_memory);
  if (!file.ok()) return Annotate(file.status(), path);
  return WriteFileAtomically(path, *file);
}

}  // namespace

absl::Status WriteModelFile(const std::string& path, const nn::Model& model,
                            absl::Span<const float> parameters,
                            const std::map<std::string, std::string>& metadata, const TableRows* tables) {
  return CatchOutOfMemory(path, [&] { return WriteFormat(path, model, parameters, metadata, tables); });
}

absl::Status PrepareModelDirectory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    return absl::InvalidArgumentError(absl::StrCat("cannot create '", directory, "': ", error.message()));
  return CheckModelFile(absl::StrCat(directory, "/model.onnx"));
}

absl::StatusOr<std::vector<std::string>> WriteModelDirectory(
    const std::string& directory, const nn::Model& model, absl::Span<const float> parameters,
    const std::map<std::string, std::string>& metadata, const TableRows* tables) {
  CAIRN_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(directory, "/model.json"),
                                            absl::StrCat(model.canonical_json(), "\n")));
  constexpr absl::string_view kWeights = "model.safetensors", kOnnx = "model.onnx";
  std::vector<std::string> names = {"model.json"};
  for (const absl::string_view name : {kWeights, kOnnx}) {
    const absl::Status status =
        WriteModelFile(absl::StrCat(directory, "/", name), model, parameters, metadata, tables);
    if (name == kOnnx && (absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status))) {
      LogWarning(status.message());
      continue;
    }
    CAIRN_RETURN_IF_ERROR(status);
    names.emplace_back(name);
  }
  return names;
}

}  // namespace cairn::worker
