#include "worker/export/keras_weights.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"
#include "data/array/zip_file.h"
#include "data/file/byte_reader.h"
#include "nn/layer/keras_class.h"
#include "worker/export/hdf5_file.h"
#include "worker/export/in_child.h"
#include "worker/export/model_source.h"

namespace cairn::worker {
namespace {

struct FileWeight {
  std::string name;     // "kernel"; in Keras 3 files, a number
  std::string dataset;  // "layers/dense/vars/0"
};

// A layer of the file that has weights.
struct FileLayer {
  // In Keras 3 files, the path of the layer's group, formed from the class and the order of the layers:
  // "layers/dense_1". In Keras 2 files, the layer's name.
  std::string path;
  std::string name;  // the layer's name in its model; empty if the file lacks it
  std::vector<FileWeight> weights;
  // True if the weights are in the order of the layer's variables; false if they are matched by name.
  bool in_order = true;
};

// A layer of the model that has variables.
struct ModelLayer {
  std::string path;  // the layer's path in a Keras 3 file
  std::string name;
  std::vector<const nn::ModelVariable*> variables;
};

std::vector<ModelLayer> LayersOf(const nn::Model& model) {
  std::vector<ModelLayer> layers;
  std::set<const nn::Layer*> seen;
  std::map<std::string, int> of_class;
  for (const nn::Node& node : model.nodes()) {
    if (!seen.insert(node.layer.get()).second) continue;
    const std::string base = nn::SnakeCase(node.layer->class_name());
    const int number = of_class[base]++;
    if (node.variables.empty()) continue;
    ModelLayer layer = {.path = absl::StrCat("layers/", base), .name = node.layer->name(), .variables = {}};
    if (number > 0) absl::StrAppend(&layer.path, "_", number);
    for (const int variable : node.variables)
      layer.variables.push_back(&model.variables()[static_cast<size_t>(variable)]);
    layers.push_back(std::move(layer));
  }
  return layers;
}

// Dropout and similar layers keep the state of their random generators among the weights.
bool IsRandomState(absl::string_view path) {
  return absl::StrContains(path, "/seed_generator") || absl::StrContains(path, "/generator/vars/");
}

// The weights of a vocabulary's tokens are part of the model's config (vocabularies.h).
bool IsOfVocabulary(absl::string_view path) {
  return absl::EndsWith(path, "/vars/idf_weights");
}

// The group of the layer that has the weights of `path`: those of recurrent layers are in a group `cell`, and those of
// layers within Bidirectional and TimeDistributed in groups of these names.
std::string OwnerOf(absl::string_view path) {
  constexpr absl::string_view kParts[] = {"/cell", "/layer", "/forward_layer", "/backward_layer"};
  for (bool shortened = true; shortened;) {
    shortened = false;
    for (const absl::string_view part : kParts) shortened |= absl::ConsumeSuffix(&path, part);
  }
  return std::string(path);
}

// Reads the layers of a Keras 3 file. The datasets are named layers/dense/vars/0; layers may be nested.
absl::StatusOr<std::vector<FileLayer>> LayersOfKeras3(const Hdf5File& file, absl::string_view root) {
  // [path of the layer][number of the weight]: dataset
  std::map<std::string, std::map<int, std::string>> found;
  for (const auto& [path, shape] : file.shapes()) {
    if (!absl::StartsWith(path, root) || IsRandomState(path) || IsOfVocabulary(path)) continue;
    const size_t vars = path.rfind("/vars/");
    int number = 0;
    if (vars == std::string::npos || !absl::SimpleAtoi(path.substr(vars + 6), &number) || number < 0)
      return absl::InvalidArgumentError(absl::StrCat("'", path, "' is not one of Keras' weights"));
    found[path.substr(0, vars)][number] = path;
  }
  std::map<std::string, FileLayer> layers;  // by path
  for (const auto& [path, weights] : found) {
    const std::string owner = OwnerOf(path);
    const auto [at, fresh] = layers.try_emplace(owner);
    FileLayer& layer = at->second;
    if (fresh) {
      layer.path = absl::StrCat("layers/", absl::StripPrefix(owner, root));
      const auto name = file.group_names().find(owner + "/vars");
      if (name != file.group_names().end()) layer.name = name->second;
    }
    std::vector<FileWeight> own;
    for (const auto& [number, dataset] : weights) {
      if (number != static_cast<int>(own.size()))
        return absl::InvalidArgumentError(absl::StrCat(path, "/vars has no weight ", own.size()));
      own.push_back({absl::StrCat(number), dataset});
    }
    const bool first = absl::StrContains(path, "/forward_layer");  // before those of the backward layer
    layer.weights.insert(first ? layer.weights.begin() : layer.weights.end(), own.begin(), own.end());
  }
  std::vector<FileLayer> list;
  for (auto& [path, layer] : layers) list.push_back(std::move(layer));
  return list;
}

// "kernel" for "dense/kernel:0".
std::string WeightName(absl::string_view dataset) {
  const absl::string_view last = dataset.substr(dataset.rfind('/') + 1);
  return std::string(last.substr(0, last.find(':')));
}

void AddWeight(FileLayer& layer, const std::string& dataset) {
  layer.weights.push_back({WeightName(dataset), dataset});
}

FileLayer NamedLayer(const std::string& name) {
  return {.path = name, .name = name, .weights = {}, .in_order = false};
}

// Reads the layers `names` below `root`, in a file that lists them. Names of layers and of weights may
// contain slashes.
absl::StatusOr<std::vector<FileLayer>> ListedLayers(const Hdf5File& file, absl::string_view root,
                                                    const std::vector<std::string>& names) {
  std::vector<FileLayer> layers;
  for (const std::string& name : names) {
    const std::string group = absl::StrCat(root, name);
    CAIRN_ASSIGN_OR_RETURN(const auto weights, file.GroupTexts(group, "weight_names"));
    if (!weights.has_value()) return absl::InvalidArgumentError(absl::StrCat(group, ": has no weight_names"));
    FileLayer layer = NamedLayer(name);
    for (const std::string& weight : *weights) {
      const std::string dataset = absl::StrCat(group, "/", weight);
      if (IsRandomState(dataset)) continue;
      if (!file.shapes().contains(dataset))
        return absl::InvalidArgumentError(absl::StrCat("has no '", dataset, "'"));
      AddWeight(layer, dataset);
    }
    if (!layer.weights.empty()) layers.push_back(std::move(layer));
  }
  return layers;
}

// Reads the layers of a Keras 2 file. The datasets are named dense/dense/kernel:0. In the .h5 file of a whole
// model they are in the group model_weights.
absl::StatusOr<std::vector<FileLayer>> LayersOfKeras2(const Hdf5File& file, absl::string_view root) {
  CAIRN_ASSIGN_OR_RETURN(const auto names,
                         file.GroupTexts(std::string(absl::StripSuffix(root, "/")), "layer_names"));
  if (names.has_value()) return ListedLayers(file, root, *names);
  std::map<std::string, FileLayer> layers;
  for (const auto& [path, shape] : file.shapes()) {
    if (!absl::StartsWith(path, root) || IsRandomState(path) || absl::StartsWith(path, "optimizer_weights/"))
      continue;
    const std::string name = path.substr(root.size(), path.find('/', root.size()) - root.size());
    AddWeight(layers.try_emplace(name, NamedLayer(name)).first->second, path);
  }
  std::vector<FileLayer> list;
  for (auto& [name, layer] : layers) list.push_back(std::move(layer));
  return list;
}

absl::StatusOr<std::vector<FileLayer>> LayersOf(const Hdf5File& file) {
  const auto holds = [&](const char* root) {
    const auto first = file.shapes().lower_bound(root);
    return first != file.shapes().end() && absl::StartsWith(first->first, root);
  };
  for (const char* root : {"layers/", "_layer_checkpoint_dependencies/"})
    if (holds(root)) return LayersOfKeras3(file, root);
  return LayersOfKeras2(file, holds("model_weights/") ? "model_weights/" : "");
}

// Indexes the file's layers by name or by path. The caller looks up the model's layers by the same key. Names
// are used if they match the model's. They are also used if every layer of the file has a name and the paths
// do not match the model's. Otherwise paths are used.
std::map<std::string, const FileLayer*> Index(const std::vector<FileLayer>& file,
                                              const std::vector<ModelLayer>& model, bool& by_name) {
  std::map<std::string, const FileLayer*> names, paths;
  for (const FileLayer& layer : file) {
    names[layer.name] = &layer;
    paths[layer.path] = &layer;
  }
  const auto all = [&](const auto& map, std::string ModelLayer::* key) {
    return map.size() == file.size() && file.size() == model.size() &&
           std::all_of(model.begin(), model.end(),
                       [&](const auto& layer) { return map.count(layer.*key) > 0; });
  };
  by_name = all(names, &ModelLayer::name) || (!all(paths, &ModelLayer::path) && names.count("") == 0);
  return by_name ? names : paths;
}

// Returns the weight of `layer` for `variable`, which is the layer's variable number `position` in the model;
// null if the file has none.
const FileWeight* Find(const FileLayer& layer, size_t position, const nn::ModelVariable& variable) {
  if (layer.in_order) return position < layer.weights.size() ? &layer.weights[position] : nullptr;
  const std::string name = WeightName(variable.name);
  std::vector<const FileWeight*> found;
  for (const FileWeight& weight : layer.weights) {
    if (weight.name == name || (name == "kernel" && weight.name == "depthwise_kernel"))
      found.push_back(&weight);
  }
  if (found.size() < 2) return found.empty() ? nullptr : found[0];
  // Both layers of a Bidirectional have a kernel. The variable's name is "bidirectional/forward_lstm/lstm_cell/kernel".
  const std::vector<std::string> parts = absl::StrSplit(variable.name, '/');
  for (const FileWeight* const weight : found) {
    if (parts.size() > 2 &&
        absl::StrContains(weight->dataset, absl::StrCat("/", parts[parts.size() - 3], "/")))
      return weight;
  }
  return nullptr;
}

// Fills `parameters` with the weights of one layer.
absl::Status ReadLayer(const Hdf5File& file, const FileLayer& from, const ModelLayer& to,
                       absl::Span<float> parameters) {
  std::vector<const FileWeight*> weights;
  bool fits = from.weights.size() == to.variables.size();
  for (size_t i = 0; i < to.variables.size(); ++i) {
    weights.push_back(Find(from, i, *to.variables[i]));
    fits = fits && weights[i] != nullptr && file.shapes().at(weights[i]->dataset) == to.variables[i]->shape;
  }
  if (!fits) {
    const auto stored = [&](std::string* out, const FileWeight& weight) {
      absl::StrAppend(out, weight.name, " ", file.shapes().at(weight.dataset).ToString());
    };
    const auto wanted = [](std::string* out, const nn::ModelVariable* variable) {
      absl::StrAppend(out, WeightName(variable->name), " ", variable->shape.ToString());
    };
    return absl::InvalidArgumentError(absl::StrCat(
        "layer '", to.name, "' (", from.path, ") has ", absl::StrJoin(from.weights, ", ", stored),
        "; in the model it has ", absl::StrJoin(to.variables, ", ", wanted)));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const nn::ModelVariable& variable = *to.variables[i];
    const auto values = parameters.subspan(static_cast<size_t>(variable.offset),
                                           static_cast<size_t>(variable.shape.num_elements()));
    CAIRN_RETURN_IF_ERROR(Annotate(file.Read(weights[i]->dataset, values), weights[i]->dataset));
  }
  return absl::OkStatus();
}

absl::StatusOr<data::SharedBytes> ReadHdf5Bytes(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const ModelFileKind kind, KindOfModelFile(path));
  if (kind != ModelFileKind::kKerasArchive) return data::ReadFileBytes(path);
  CAIRN_ASSIGN_OR_RETURN(const data::ZipFile archive, data::ZipFile::Open(path));
  return ReadMember(archive, path, kWeightsMember);
}

// `parameters`: in the model's flat order.
absl::Status ReadWeights(data::SharedBytes bytes, const nn::Model& model, absl::Span<float> parameters) {
  CAIRN_ASSIGN_OR_RETURN(const Hdf5File file, Hdf5File::Open(std::move(bytes)));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<FileLayer> stored, LayersOf(file));
  const std::vector<ModelLayer> layers = LayersOf(model);
  bool by_name = false;
  std::map<std::string, const FileLayer*> index = Index(stored, layers, by_name);
  for (const ModelLayer& layer : layers) {
    const auto found = index.find(by_name ? layer.name : layer.path);
    if (found == index.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("has no layer '", layer.name, "'; it has ",
                       absl::StrJoin(stored, ", ", [](std::string* out, const FileLayer& other) {
                         absl::StrAppend(out, other.name.empty() ? other.path : other.name);
                       })));
    }
    CAIRN_RETURN_IF_ERROR(ReadLayer(file, *found->second, layer, parameters));
    index.erase(found);
  }
  for (const auto& [key, layer] : index) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer '", key, "' (", layer->path, ") is not in the model"));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsKerasWeightsFile(const std::string& path) {
  return absl::EndsWith(path, ".keras") || absl::EndsWith(path, ".h5") || absl::EndsWith(path, ".hdf5");
}

absl::StatusOr<std::vector<float>> LoadKerasWeights(const std::string& path, const nn::Model& model) {
  CAIRN_ASSIGN_OR_RETURN(const data::SharedBytes bytes, ReadHdf5Bytes(path));
  // libhdf5 may crash or hang on a damaged file.
  auto values =
      RunInChild(static_cast<size_t>(model.num_parameters()), {},
                 [&](absl::Span<float> parameters) { return ReadWeights(bytes, model, parameters); });
  if (!values.ok()) return Annotate(values.status(), path);
  return values;
}

}  // namespace cairn::worker
