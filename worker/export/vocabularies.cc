#include "worker/export/vocabularies.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/core/json.h"
#include "common/core/status.h"
#include "data/file/byte_reader.h"
#include "nn/layer/keras_class.h"
#include "worker/export/hdf5_file.h"
#include "worker/export/in_child.h"
#include "worker/export/model_layers.h"
#include "worker/export/model_source.h"

namespace cairn::worker {
namespace {

using nlohmann::json;

constexpr int64_t kMaxVocabularyBytes = int64_t{256} << 20;
// The folders of layers in an archive, of Keras 3 and of older versions.
constexpr const char* kRoots[] = {"layers", "_layer_checkpoint_dependencies"};

absl::string_view TextIn(const data::SharedBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool IsLookup(const json& layer) {
  if (!layer.is_object() || !layer.contains("config") || !layer["config"].is_object()) return false;
  const json class_name = layer.value("class_name", json());
  return class_name == "StringLookup" || class_name == "IntegerLookup" || class_name == "TextVectorization";
}

bool IsUtf8(absl::string_view text) {
  try {
    json(std::string(text)).dump();
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

// The tokens of `text`, one in each line, as the layer's config has them. Keras omits the line break of the last line.
absl::StatusOr<json> TokensOf(absl::string_view text, const json& layer) {
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const json size = layer["config"].value("vocabulary_size", json());
  const auto most = size.is_number_unsigned() ? size.get<size_t>() : 0;
  while (!lines.empty() && lines.back().empty() && lines.size() > most) lines.pop_back();
  json tokens = json::array();
  const bool integers = layer["class_name"] == "IntegerLookup";
  for (const absl::string_view line : lines) {
    int64_t integer = 0;
    if (!integers) {
      if (!IsUtf8(line)) {
        return absl::InvalidArgumentError(absl::StrCat("line ", tokens.size() + 1, " is not UTF-8"));
      }
      tokens.push_back(std::string(line));
    } else if (absl::SimpleAtoi(line, &integer)) {
      tokens.push_back(integer);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("line ", tokens.size() + 1, " is not an integer"));
    }
  }
  return tokens;
}

// Whether `token` of a layer's vocabulary stands for masked values or for those outside of the vocabulary.
bool IsSpecial(const json& token, const json& config) {
  return token == config.value("mask_token", json("")) || token == config.value("oov_token", json("[UNK]"));
}

// The idf_weights in model.weights.h5, as an object: {"layers/string_lookup": [0.5, 1]}.
absl::StatusOr<std::string> ReadIdfWeights(data::SharedBytes bytes) {
  constexpr absl::string_view kName = "/vars/idf_weights";
  CAIRN_ASSIGN_OR_RETURN(const Hdf5File file, Hdf5File::Open(std::move(bytes)));
  json found = json::object();
  for (const auto& [path, shape] : file.shapes()) {
    if (!absl::EndsWith(path, kName)) continue;
    std::vector<float> weights(static_cast<size_t>(shape.num_elements()));
    CAIRN_RETURN_IF_ERROR(Annotate(file.Read(path, absl::MakeSpan(weights)), path));
    found[path.substr(0, path.size() - kName.size())] = weights;
  }
  return found.dump();
}

// Reads the members of an archive that belong to its layers.
class ArchiveReader {
 public:
  ArchiveReader(const data::ZipFile& archive, const std::string& path) : archive_(archive), path_(path) {}

  // `folders`: those of the models around the layers, of which the model itself has none.
  absl::Status AddToLayers(const std::vector<std::string>& folders, json& model) {
    nn::GroupNames group_names;
    return ForEachLayer(model, [&](json& layer) -> absl::Status {
      if (!layer.is_object() || !layer.value("class_name", json()).is_string()) return absl::OkStatus();
      std::string folder = group_names.Next(layer["class_name"].get<std::string>());
      std::vector<std::string> of_layer = folders;
      of_layer.push_back(std::move(folder));
      return IsModel(layer) ? AddToLayers(of_layer, layer) : AddTo(of_layer, layer);
    });
  }

 private:
  absl::Status AddTo(const std::vector<std::string>& folders, json& layer) {
    if (!IsLookup(layer)) return absl::OkStatus();
    json& config = layer["config"];
    for (const char* root : kRoots) {
      const std::string of_layer =
          absl::StrCat(root, "/", absl::StrJoin(folders, absl::StrCat("/", root, "/")));
      const std::string member = absl::StrCat("assets/", of_layer, "/vocabulary.txt");
      if (config.value("vocabulary", json()).is_null() && archive_.Has(member)) {
        CAIRN_ASSIGN_OR_RETURN(const auto bytes, ReadMember(archive_, path_, member, kMaxVocabularyBytes));
        auto tokens = TokensOf(TextIn(bytes), layer);
        if (!tokens.ok()) return Annotate(tokens.status(), absl::StrCat(path_, ": ", member));
        // A layer that was not adapted has a file of its special tokens.
        if (!absl::c_all_of(*tokens, [&](const json& token) { return IsSpecial(token, config); }))
          config["vocabulary"] = *std::move(tokens);
      }
      if (config.value("output_mode", json()) == "tf_idf" && config.value("idf_weights", json()).is_null()) {
        CAIRN_RETURN_IF_ERROR(ReadWeights());
        if (idf_weights_->contains(of_layer)) config["idf_weights"] = (*idf_weights_)[of_layer];
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadWeights() {
    if (idf_weights_) return absl::OkStatus();
    idf_weights_ = json::object();
    if (!archive_.Has(kWeightsMember)) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(const auto bytes, ReadMember(archive_, path_, kWeightsMember));
    const auto text = ReadTextInChild(kMaxVocabularyBytes, {.memory_bytes = 4 * kMaxVocabularyBytes},
                                      [&] { return ReadIdfWeights(bytes); });
    const std::string name = absl::StrCat(path_, ": ", kWeightsMember);
    if (!text.ok()) return Annotate(text.status(), name);
    CAIRN_ASSIGN_OR_RETURN(idf_weights_, ParseJson(*text, name));
    return absl::OkStatus();
  }

  const data::ZipFile& archive_;
  const std::string path_;
  std::optional<json> idf_weights_;  // by the layer's path
};

}  // namespace

bool MayHaveVocabularies(absl::string_view json) {
  return absl::StrContains(json, "Lookup") || absl::StrContains(json, "TextVectorization");
}

absl::Status AddVocabularies(const data::ZipFile& archive, const std::string& path, json& model) {
  return ArchiveReader(archive, path).AddToLayers({}, model);
}

absl::StatusOr<bool> ReadVocabularyFiles(const std::string& path, json& model) {
  bool any = false;
  CAIRN_RETURN_IF_ERROR(ForEachLayer(model, [&](json& layer) -> absl::Status {
    if (IsModel(layer)) {
      CAIRN_ASSIGN_OR_RETURN(const bool inner, ReadVocabularyFiles(path, layer));
      any = any || inner;
      return absl::OkStatus();
    }
    if (!IsLookup(layer) || !layer["config"].value("vocabulary", json()).is_string()) return absl::OkStatus();
    json& vocabulary = layer["config"]["vocabulary"];
    const std::string file =
        (std::filesystem::path(path).parent_path() / vocabulary.get<std::string>()).string();
    auto bytes = data::ReadFileBytes(file);
    const std::string where =
        absl::StrCat(path, ": vocabulary of ", layer["config"].value("name", json()).dump());
    if (!bytes.ok()) return Annotate(absl::InvalidArgumentError(bytes.status().message()), where);
    auto tokens = TokensOf(TextIn(*bytes), layer);
    if (!tokens.ok()) return Annotate(tokens.status(), absl::StrCat(where, ": ", file));
    vocabulary = *std::move(tokens);
    any = true;
    return absl::OkStatus();
  }));
  return any;
}

}  // namespace cairn::worker
