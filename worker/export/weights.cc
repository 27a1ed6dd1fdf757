#include "worker/export/weights.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/files.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "data/array/npz.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/file_io.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/embedding/table_run.h"
#include "worker/export/keras_weights.h"
#include "worker/export/model_source.h"
#include "worker/model/finite.h"
#include "worker/options/job.h"

namespace cairn::worker {
namespace {

absl::StatusOr<WeightArrays> ReadSafetensors(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  uint32_t crc = 0;
  char length[8];
  CAIRN_RETURN_IF_ERROR(file.ReadAt(0, length, crc));
  uint64_t header = 0;
  for (int i = 7; i >= 0; --i) header = header << 8 | static_cast<unsigned char>(length[i]);
  if (header > kMaxSafetensorsHeader || header + sizeof(length) > file.size()) {
    return absl::DataLossError(
        absl::StrCat("its header has ", header, " bytes, the file only ", file.size()));
  }
  std::string head(header + sizeof(length), '\0');
  CAIRN_RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(head), crc));
  CAIRN_ASSIGN_OR_RETURN(const SafetensorsFile tensors, ParseSafetensorsHead(head, file.size()));
  WeightArrays arrays;
  for (const StoredTensor& tensor : tensors.tensors) {
    if (tensor.type != TensorType::kF32) {
      return absl::FailedPreconditionError(
          absl::StrCat("tensor '", tensor.name, "' is ", NameOf(tensor.type), ", and weights are F32"));
    }
    WeightArray& array = arrays[tensor.name];
    array.shape = tensor.shape;
    array.values = FloatVector(tensor.shape.num_elements(), absl::StrCat("tensor '", tensor.name, "'"));
    const absl::Span<char> bytes(reinterpret_cast<char*>(array.values.data()),
                                 array.values.size() * sizeof(float));
    CAIRN_RETURN_IF_ERROR(file.ReadAt(tensor.offset, bytes, crc));
  }
  return arrays;
}

absl::StatusOr<WeightArrays> ReadNpz(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const data::NpzFile file, data::NpzFile::Open(path));
  WeightArrays arrays;
  for (const std::string& name : file.Names()) {
    CAIRN_ASSIGN_OR_RETURN(const data::Array array, file.Read(name));
    if (data::IsInteger(array.type)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", name, ": is ", data::NameOf(array.type), ", not floating point"));
    }
    WeightArray& weights = arrays[name];
    weights.shape = array.shape;
    const int64_t elements = array.shape.num_elements();
    weights.values.reserve(static_cast<size_t>(elements));
    data::WithType(array.type, [&](auto type) {
      for (int64_t i = 0; i < elements; ++i) {
        weights.values.push_back(static_cast<float>(data::ElementAt<decltype(type)>(array.bytes.data(), i)));
      }
    });
  }
  return arrays;
}

// The newest undamaged checkpoint of a train_dir, or the checkpoint whose directory is given.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path) {
  if (FileExists(absl::StrCat(path, "/", kStateFile))) return Checkpoint::Open(path);
  return OpenNewest(path, [](const absl::Status& skipped) {
    LogWarning("skipped a damaged checkpoint: ", skipped.message());
  });
}

// The purpose of the memory, for the error when there is too little.
constexpr char kVariables[] = "the model's variables";

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

// Reads a weights file, without checking that its values are finite.
absl::StatusOr<std::vector<float>> ReadWeightsFile(const std::string& path, const nn::Model& model) {
  if (IsKerasWeightsFile(path)) return LoadKerasWeights(path, model);
  CAIRN_ASSIGN_OR_RETURN(const WeightArrays arrays, ReadWeightArrays(path));
  return MatchWeights(arrays, model, path);
}

// The table of a checkpoint that has the values of a variable; null: the variable is none.
const TableRun* TableOf(const Checkpoint& checkpoint, absl::string_view variable) {
  if (!checkpoint.run().tables.has_value()) return nullptr;
  for (const TableRun& table : *checkpoint.run().tables) {
    if (table.name == variable) return &table;
  }
  return nullptr;
}

}  // namespace

absl::Status FillParameters(const Checkpoint& checkpoint, const nn::Model& model, absl::Span<float> into) {
  std::vector<net::VariableInfo> variables;
  for (const net::VariableInfo& variable : VariablesOf(model)) {
    const TableRun* const table = TableOf(checkpoint, variable.name);
    if (table == nullptr) {
      variables.push_back(variable);
      continue;
    }
    const Shape shape({table->vocabulary_size, table->dim});
    if (table->vocabulary_size > 0 && variable.shape != shape) {
      return absl::FailedPreconditionError(absl::StrCat(checkpoint.directory(), ": table '", table->name,
                                                        "' has shape ", shape.ToString(), " in it and ",
                                                        variable.shape.ToString(), " here"));
    }
    CAIRN_RETURN_IF_ERROR(FillWithTable(checkpoint, *table,
                                        into.subspan(static_cast<size_t>(variable.offset),
                                                     static_cast<size_t>(variable.shape.num_elements()))));
  }
  return checkpoint.Load(variables, {}, {into});
}

absl::StatusOr<WeightArrays> ReadWeightArrays(const std::string& path) {
  if (absl::EndsWith(path, ".npz")) return ReadNpz(path);
  if (absl::EndsWith(path, ".safetensors")) {
    auto arrays = ReadSafetensors(path);
    if (!arrays.ok() && !absl::StrContains(arrays.status().message(), path))
      return Annotate(arrays.status(), path);
    return arrays;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", path, "' is neither a directory with checkpoints nor .safetensors, .npz, .keras, .h5 or .hdf5"));
}

absl::StatusOr<std::vector<float>> MatchWeights(const WeightArrays& arrays, const nn::Model& model,
                                                absl::string_view source) {
  std::vector<float> parameters = FloatVector(model.num_parameters(), kVariables);
  std::set<std::string> wanted;
  for (const nn::ModelVariable& variable : model.variables()) {
    wanted.insert(variable.name);
    const auto found = arrays.find(variable.name);
    if (found == arrays.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          source, ": has no '", variable.name, "'; it has ",
          absl::StrJoin(arrays, ", ",
                        [](std::string* out, const auto& array) { absl::StrAppend(out, array.first); })));
    }
    if (found->second.shape != variable.shape) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": '", variable.name, "' has shape ",
                                                     found->second.shape.ToString(), ", in the model ",
                                                     variable.shape.ToString()));
    }
    std::copy(found->second.values.begin(), found->second.values.end(), parameters.begin() + variable.offset);
  }
  for (const auto& [name, array] : arrays) {
    if (wanted.count(name) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": '", name, "' is not in the model"));
    }
  }
  return parameters;
}

absl::StatusOr<std::vector<float>> LoadWeights(const std::string& path, const nn::Model& model) {
  if (IsDirectory(path)) {
    CAIRN_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(path));
    return LoadWeights(checkpoint, model);
  }
  return CatchOutOfMemory(path, [&]() -> absl::StatusOr<std::vector<float>> {
    CAIRN_ASSIGN_OR_RETURN(std::vector<float> parameters, ReadWeightsFile(path, model));
    CAIRN_RETURN_IF_ERROR(CheckFinite(model, parameters, path));
    return parameters;
  });
}

absl::StatusOr<std::vector<float>> LoadWeights(const Checkpoint& checkpoint, const nn::Model& model) {
  return CatchOutOfMemory(checkpoint.directory(), [&]() -> absl::StatusOr<std::vector<float>> {
    std::vector<float> parameters = FloatVector(model.num_parameters(), kVariables);
    CAIRN_RETURN_IF_ERROR(FillParameters(checkpoint, model, absl::MakeSpan(parameters)));
    CAIRN_RETURN_IF_ERROR(CheckFinite(model, parameters, checkpoint.directory()));
    return parameters;
  });
}

absl::StatusOr<TrainedModel> LoadTrainedModel(const std::string& path, const std::string& model_file) {
  if (!IsDirectory(path)) {
    if (model_file.empty() && !IsKerasWeightsFile(path)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--model: ", path, " contains only values: give the model's file"));
    }
    CAIRN_ASSIGN_OR_RETURN(nn::Model model, ReadModelFile(model_file.empty() ? path : model_file));
    CAIRN_ASSIGN_OR_RETURN(std::vector<float> parameters, LoadWeights(path, model));
    CAIRN_ASSIGN_OR_RETURN(DataRecord data, ReadDataRecord(path));
    return TrainedModel{std::move(model), std::move(parameters), std::nullopt, std::move(data)};
  }
  CAIRN_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(path));
  auto model = model_file.empty() ? nn::Model::FromJson(checkpoint.model_json(),
                                                        absl::StrCat(checkpoint.directory(), "/model.json"))
                                  : ReadModelFile(model_file);
  CAIRN_RETURN_IF_ERROR(model);
  CAIRN_ASSIGN_OR_RETURN(std::vector<float> parameters, LoadWeights(checkpoint, *model));
  CAIRN_ASSIGN_OR_RETURN(DataRecord data, ReadDataRecord(path));
  return TrainedModel{*std::move(model), std::move(parameters), checkpoint.run().global_step,
                      std::move(data)};
}

}  // namespace cairn::worker
