#include "worker/export/model_source.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/json.h"
#include "common/core/status.h"
#include "data/file/byte_reader.h"
#include "worker/export/hdf5_file.h"
#include "worker/export/in_child.h"
#include "worker/export/vocabularies.h"

namespace cairn::worker {
namespace {

using nlohmann::json;

constexpr absl::string_view kZipMagic("PK\x03\x04", 4);
constexpr absl::string_view kHdf5Magic("\x89HDF\r\n\x1a\n", 8);
constexpr char kMetadataMember[] = "metadata.json";  // in a .keras archive: Keras' version and the date
constexpr int64_t kMaxConfigBytes = int64_t{256} << 20;

absl::string_view TextOf(const data::SharedBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ModelFileKind KindOf(absl::string_view bytes) {
  if (absl::StartsWith(bytes, kZipMagic)) return ModelFileKind::kKerasArchive;
  return absl::StartsWith(bytes, kHdf5Magic) ? ModelFileKind::kHdf5 : ModelFileKind::kText;
}

absl::StatusOr<nn::Model> ReadJsonFile(const std::string& path, const nn::InputSizes& sizes) {
  CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  if (MayHaveVocabularies(text)) {
    CAIRN_ASSIGN_OR_RETURN(json model, ParseJson(WithFiniteNumbers(text), path));
    CAIRN_ASSIGN_OR_RETURN(const bool any, ReadVocabularyFiles(path, model));
    if (any) return nn::Model::FromJson(model.dump(), path, sizes);
  }
  return nn::Model::FromJson(text, path, sizes);
}

// Returns a JSON array of the root's attributes model_config and training_config, with null for an absent
// attribute.
absl::StatusOr<std::string> ReadConfigs(data::SharedBytes bytes) {
  CAIRN_ASSIGN_OR_RETURN(const Hdf5File file, Hdf5File::Open(std::move(bytes)));
  std::string configs;
  for (const char* attribute : {"model_config", "training_config"}) {
    CAIRN_ASSIGN_OR_RETURN(const auto text, file.RootText(attribute));
    absl::StrAppend(&configs, configs.empty() ? "[" : ",", text.value_or("null"));
  }
  return configs + "]";
}

// The equivalent of a Keras 3 archive's compile_config, from the training_config of an .h5 file.
json CompileConfigOf(json training) {
  if (!training.is_object()) return training;
  if (training.contains("optimizer_config")) training["optimizer"] = training["optimizer_config"];
  training.erase("optimizer_config");
  training.erase("sample_weight_mode");  // from Keras 2, for sequence models
  return training;
}

absl::StatusOr<nn::Model> ReadHdf5(data::SharedBytes bytes, const std::string& path,
                                   const nn::InputSizes& sizes) {
  const auto configs = ReadTextInChild(kMaxConfigBytes, {.memory_bytes = 4 * kMaxConfigBytes},
                                       [&] { return ReadConfigs(bytes); });
  if (!configs.ok()) return Annotate(configs.status(), path);
  CAIRN_ASSIGN_OR_RETURN(json both,
                         ParseJson(WithFiniteNumbers(*configs), absl::StrCat(path, ": model_config")));
  json& model = both[0];
  if (model.is_null()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": contains only weights and no model_config: give the model by --model"));
  }
  if (model.is_object() && !both[1].is_null()) model["compile_config"] = CompileConfigOf(std::move(both[1]));
  return nn::Model::FromJson(model.dump(), absl::StrCat(path, "/model_config"), sizes);
}

}  // namespace

absl::StatusOr<ModelFileKind> KindOfModelFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    return ModelFileKind::kText;
  CAIRN_ASSIGN_OR_RETURN(const data::SharedBytes bytes, data::ReadFileBytes(path));
  return KindOf(TextOf(bytes));
}

absl::StatusOr<data::SharedBytes> ReadMember(const data::ZipFile& archive, const std::string& path,
                                             const std::string& member, int64_t max_bytes) {
  if (!archive.Has(member)) return absl::InvalidArgumentError(absl::StrCat(path, ": has no ", member));
  const auto read = [&]() -> absl::StatusOr<data::SharedBytes> {
    CAIRN_ASSIGN_OR_RETURN(const auto reader, archive.OpenMember(member));
    if (reader->max_bytes() > max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("has ", reader->max_bytes(), " bytes, more than the limit of ", max_bytes));
    }
    return reader->Take(reader->max_bytes());
  };
  auto bytes = read();
  if (!bytes.ok()) return Annotate(bytes.status(), absl::StrCat(path, ": ", member));
  return bytes;
}

absl::StatusOr<std::string> ReadArchiveText(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const data::ZipFile archive, data::ZipFile::Open(path));
  CAIRN_ASSIGN_OR_RETURN(const data::SharedBytes config,
                         ReadMember(archive, path, kConfigMember, kMaxConfigBytes));
  if (archive.Has(kMetadataMember))
    CAIRN_RETURN_IF_ERROR(ReadMember(archive, path, kMetadataMember, kMaxConfigBytes));
  if (!MayHaveVocabularies(TextOf(config))) return std::string(TextOf(config));
  CAIRN_ASSIGN_OR_RETURN(
      json model, ParseJson(WithFiniteNumbers(TextOf(config)), absl::StrCat(path, "/", kConfigMember)));
  CAIRN_RETURN_IF_ERROR(AddVocabularies(archive, path, model));
  return model.dump();
}

absl::StatusOr<nn::Model> ReadModelFile(const std::string& path, const nn::InputSizes& sizes) {
  CAIRN_ASSIGN_OR_RETURN(const ModelFileKind kind, KindOfModelFile(path));
  if (kind == ModelFileKind::kKerasArchive) {
    CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadArchiveText(path));
    return nn::Model::FromJson(text, absl::StrCat(path, "/", kConfigMember), sizes);
  }
  if (kind == ModelFileKind::kText) return ReadJsonFile(path, sizes);
  CAIRN_ASSIGN_OR_RETURN(data::SharedBytes bytes, data::ReadFileBytes(path));
  return ReadHdf5(std::move(bytes), path, sizes);
}

bool HasWeights(const std::string& path) {
  const auto kind = KindOfModelFile(path);
  if (!kind.ok() || *kind == ModelFileKind::kText) return false;
  if (*kind == ModelFileKind::kHdf5) return true;
  const auto archive = data::ZipFile::Open(path);
  return archive.ok() && archive->Has(kWeightsMember);
}

}  // namespace cairn::worker
