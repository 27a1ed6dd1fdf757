#include "worker/export/keras_weights.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
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
  std::string name;      // "kernel"; in Keras 3 files, a number
  std::string dataset;   // "layers/dense/vars/0"
  std::string listed{};  // in a file that lists its weights: "block/conv/kernel:0"
};

// A layer of the file that has weights.
struct FileLayer {
  // In Keras 3 files, the path of the layer's group, formed from the class and the order of the layers:
  // "layers/dense_1". In Keras 2 files, the layer's name.
  std::string path;
  std::vector<std::string> names;  // as in ModelLayer; empty if the file lacks one
  std::vector<FileWeight> weights;
  // True if the weights are in the order of the layer's variables; false if they are matched by name.
  bool in_order = true;
};

// A layer of the model that has variables.
struct ModelLayer {
  std::string path{};                // the layer's path in a Keras 3 file
  std::vector<std::string> names{};  // those of the models around it, then its own
  std::vector<const nn::ModelVariable*> variables{};
  // The file may have one weight more: that of the reverse calls, which the model may lack.
  bool reversible = false;
};

std::vector<ModelLayer> LayersOf(const nn::Model& model) {
  std::vector<ModelLayer> layers;
  std::set<int> seen;  // variables
  for (const nn::Node& node : model.nodes()) {
    ModelLayer layer = {.reversible = node.layer->class_name() == "ReversibleEmbedding"};
    for (const nn::KerasGroup& group : node.groups) {
      absl::StrAppend(&layer.path, layer.path.empty() ? "" : "/", group.group);
      layer.names.push_back(group.name);
    }
    for (const int variable : node.variables) {
      if (seen.insert(variable).second)
        layer.variables.push_back(&model.variables()[static_cast<size_t>(variable)]);
    }
    if (layer.variables.empty()) continue;
    // A layer may share the group of another one (nn::Layer::variables_of).
    const auto group = std::find_if(layers.begin(), layers.end(), [&](const ModelLayer& other) {
      return node.layer->variables_of() != "" && other.path == layer.path;
    });
    if (group == layers.end()) {
      layers.push_back(std::move(layer));
    } else {
      group->variables.insert(group->variables.end(), layer.variables.begin(), layer.variables.end());
    }
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

// The group of the layer that has the weights of a group, and the place of these among all that the layer has.
struct WeightsPlace {
  std::string layer;
  int place = 0;
};

// Recurrent layers have their weights in a group `cell`; layers within Bidirectional, TimeDistributed and those of
// attention have them in groups of their own.
WeightsPlace PlaceOf(absl::string_view path) {
  struct Part {
    absl::string_view suffix;
    int place;
  };
  constexpr Part kParts[] = {{"/cell", 0},           {"/layer", 0},        {"/forward_layer", 0},
                             {"/backward_layer", 1}, {"/query_dense", 0},  {"/_query_dense", 0},
                             {"/key_dense", 1},      {"/_key_dense", 1},   {"/value_dense", 2},
                             {"/_value_dense", 2},   {"/output_dense", 3}, {"/_output_dense", 3}};
  int place = 0;
  for (bool shortened = true; shortened;) {
    shortened = false;
    for (const Part& part : kParts) {
      if (!absl::ConsumeSuffix(&path, part.suffix)) continue;
      place += part.place;
      shortened = true;
    }
  }
  return {std::string(path), place};
}

// The names of the layers on the path of a group: tower and conv for "layers/functional/layers/conv2d". Layers of
// keras_hub hold other layers in attributes: "layers/transformer_decoder/_self_attention_layer". Empty if the file
// lacks a name.
std::vector<std::string> NamesOn(const std::string& path, const Hdf5File& file) {
  std::vector<std::string> names;
  for (size_t slash = path.find('/'); slash != std::string::npos;) {
    const size_t end = path.find('/', slash + 1);
    // The group `layers` of a model is no layer itself.
    if (end != std::string::npos && path.compare(slash, end - slash, "/layers") == 0) {
      slash = end;
      continue;
    }
    const auto name = file.group_names().find(path.substr(0, end) + "/vars");
    if (name == file.group_names().end()) return {};
    names.push_back(name->second);
    slash = end;
  }
  return names;
}

// Reads the layers of a Keras 3 file. The datasets are named layers/dense/vars/0, and those of a model within the model
// layers/functional/layers/dense/vars/0. `root` is "layers/", or what older versions wrote in its place.
absl::StatusOr<std::vector<FileLayer>> LayersOfKeras3(const Hdf5File& file, absl::string_view root) {
  // [group of the layer][place of the group, its path][number of the weight]: dataset
  std::map<std::string, std::map<std::pair<int, std::string>, std::map<int, std::string>>> found;
  for (const auto& [path, shape] : file.shapes()) {
    if (!absl::StartsWith(path, root) || IsRandomState(path) || IsOfVocabulary(path)) continue;
    const size_t vars = path.rfind("/vars/");
    int number = 0;
    if (vars == std::string::npos || !absl::SimpleAtoi(path.substr(vars + 6), &number) || number < 0)
      return absl::InvalidArgumentError(absl::StrCat("'", path, "' is not one of Keras' weights"));
    const std::string group = path.substr(0, vars);
    const WeightsPlace at = PlaceOf(group);
    found[at.layer][{at.place, group}][number] = path;
  }
  std::vector<FileLayer> layers;
  for (const auto& [path, groups] : found) {
    FileLayer layer = {
        .path = absl::StrReplaceAll(path, {{root, "layers/"}}), .names = NamesOn(path, file), .weights = {}};
    for (const auto& [group, weights] : groups) {
      int next = 0;
      for (const auto& [number, dataset] : weights) {
        if (number != next)
          return absl::InvalidArgumentError(absl::StrCat(group.second, "/vars has no weight ", next));
        layer.weights.push_back({absl::StrCat(number), dataset});
        ++next;
      }
    }
    layers.push_back(std::move(layer));
  }
  return layers;
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
  return {.path = name, .names = {name}, .weights = {}, .in_order = false};
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
      layer.weights.back().listed = weight;
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
    // A Keras 3 file of a model without weights has only those of its optimizer, optimizer/vars/0.
    const bool of_optimizer =
        absl::StartsWith(path, "optimizer_weights/") || absl::StartsWith(path, "optimizer/vars/");
    if (!absl::StartsWith(path, root) || IsRandomState(path) || of_optimizer) continue;
    const std::string name = path.substr(root.size(), path.find('/', root.size()) - root.size());
    AddWeight(layers.try_emplace(name, NamedLayer(name)).first->second, path);
  }
  std::vector<FileLayer> list;
  for (auto& [name, layer] : layers) list.push_back(std::move(layer));
  return list;
}

// Whether a listed weight is a variable of a layer. A convolution by depth names its kernel in its own way in Keras 2.
bool IsVariable(const FileWeight& weight, const nn::ModelVariable& variable) {
  const std::string name = WeightName(variable.name);
  return weight.name == name || (name == "kernel" && weight.name == "depthwise_kernel");
}

// Divides the list of a model within the model, which Keras 2 writes, among its layers. Keras names a weight by the
// layer alone or also by models around it: "conv/kernel:0", "tower/conv/kernel", "outer/tower/conv/kernel".
class NestedList {
 public:
  explicit NestedList(FileLayer& list) : list_(list) {}

  // Removes the weights of `layer` from the list, and adds them to `into`. `exact`: without models around those of
  // `layer`, because a layer's name may have slashes and end like another's.
  void Take(const ModelLayer& layer, bool exact, FileLayer& into) {
    for (auto from = layer.names.begin(); from != layer.names.end(); ++from) {
      const std::string name = absl::StrJoin(from, layer.names.end(), "/");
      for (const nn::ModelVariable* variable : layer.variables) {
        const auto has = [&](const FileWeight& weight) { return IsVariable(weight, *variable); };
        if (std::any_of(into.weights.begin(), into.weights.end(), has)) continue;
        const auto found =
            std::find_if(list_.weights.begin(), list_.weights.end(), [&](const FileWeight& weight) {
              if (!has(weight)) return false;
              const absl::string_view owner = OwnerOf(weight);
              return owner == name || (!exact && absl::EndsWith(owner, absl::StrCat("/", name)));
            });
        if (found == list_.weights.end()) continue;
        into.weights.push_back(std::move(*found));
        list_.weights.erase(found);
      }
    }
  }

 private:
  // "tower/conv" for "tower/conv/kernel".
  static absl::string_view OwnerOf(const FileWeight& weight) {
    return absl::string_view(weight.listed).substr(0, weight.listed.rfind('/'));
  }

  FileLayer& list_;
};

// Replaces each model within the model by its layers.
void DivideNested(const std::vector<ModelLayer>& model, std::vector<FileLayer>& file) {
  std::vector<FileLayer> divided;
  for (FileLayer& entry : file) {
    std::vector<std::pair<const ModelLayer*, FileLayer>> inner;
    for (const ModelLayer& layer : model) {
      if (entry.in_order || layer.names.size() < 2 || layer.names[0] != entry.path) continue;
      inner.push_back({&layer, {.path = entry.path, .names = layer.names, .weights = {}, .in_order = false}});
    }
    NestedList list(entry);
    for (const bool exact : {true, false}) {
      for (auto& [layer, weights] : inner) list.Take(*layer, exact, weights);
    }
    for (auto& [layer, weights] : inner) {
      if (!weights.weights.empty()) divided.push_back(std::move(weights));
    }
    if (!entry.weights.empty()) divided.push_back(std::move(entry));
  }
  file = std::move(divided);
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

// The property that identifies a layer in the file and in the model.
enum class LayerKey {
  kName,      // the names of the models around it, and its own
  kPath,      // classes and order
  kLastName,  // its own name, for a file of nested models that is read into one without them
};

template <typename Layer>
std::string KeyOf(const Layer& layer, LayerKey key) {
  if (key == LayerKey::kPath || layer.names.empty()) return key == LayerKey::kPath ? layer.path : "";
  return key == LayerKey::kName ? absl::StrJoin(layer.names, "/") : layer.names.back();
}

// The file's layers by their keys.
using FileIndex = std::map<std::string, const FileLayer*>;
FileIndex IndexBy(LayerKey key, const std::vector<FileLayer>& file) {
  FileIndex index;
  for (const FileLayer& layer : file) index[KeyOf(layer, key)] = &layer;
  return index;
}

// The first kind of key by which the layers of the file are those of the model. If there is none, it is names, if the
// file has them, or else paths.
LayerKey ChooseKey(const std::vector<FileLayer>& file, const std::vector<ModelLayer>& model) {
  for (const LayerKey key : {LayerKey::kName, LayerKey::kPath, LayerKey::kLastName}) {
    const FileIndex index = IndexBy(key, file);
    const bool all = index.size() == file.size() && file.size() == model.size() &&
                     std::all_of(model.begin(), model.end(),
                                 [&](const ModelLayer& layer) { return index.count(KeyOf(layer, key)) > 0; });
    if (all) return key;
  }
  const bool named =
      std::none_of(file.begin(), file.end(), [](const FileLayer& layer) { return layer.names.empty(); });
  const bool nested =
      std::any_of(model.begin(), model.end(), [](const ModelLayer& layer) { return layer.names.size() > 1; });
  return !named ? LayerKey::kPath : nested ? LayerKey::kName : LayerKey::kLastName;
}

// Returns the weight of `layer` for variable number `position` of `of`; null if the file has none.
const FileWeight* Find(const FileLayer& layer, size_t position, const ModelLayer& of) {
  if (layer.in_order) return position < layer.weights.size() ? &layer.weights[position] : nullptr;
  const nn::ModelVariable& variable = *of.variables[position];
  // "query/kernel" in a layer of attention, "forward_lstm/lstm_cell/kernel" in a Bidirectional.
  const absl::string_view nested =
      absl::StripPrefix(variable.name, absl::StrCat(KeyOf(of, LayerKey::kName), "/"));
  if (absl::StrContains(nested, '/')) {
    const std::string ending = absl::StrCat("/", nested);
    for (const FileWeight& weight : layer.weights) {
      if (absl::EndsWith(absl::StripSuffix(weight.dataset, ":0"), ending)) return &weight;
    }
  }
  std::vector<const FileWeight*> found;
  for (const FileWeight& weight : layer.weights)
    if (IsVariable(weight, variable)) found.push_back(&weight);
  if (found.size() < 2) return found.empty() ? nullptr : found[0];
  // Keras numbers the cells of a Bidirectional, but not its layers.
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
  const size_t given = from.weights.size(), needed = to.variables.size();
  bool fits = given == needed || (to.reversible && given == needed + 1);
  for (size_t i = 0; i < to.variables.size(); ++i) {
    weights.push_back(Find(from, i, to));
    fits = fits && weights[i] != nullptr && file.shapes().at(weights[i]->dataset) == to.variables[i]->shape;
  }
  if (!fits) {
    const auto stored = [&](std::string* out, const FileWeight& weight) {
      absl::StrAppend(out, weight.name, " ", file.shapes().at(weight.dataset).ToString());
    };
    const auto wanted = [](std::string* out, const nn::ModelVariable* variable) {
      absl::StrAppend(out, WeightName(variable->name), " ", variable->shape.ToString());
    };
    return absl::InvalidArgumentError(absl::StrCat("layer '", KeyOf(to, LayerKey::kName), "' (", from.path,
                                                   ") has ", absl::StrJoin(from.weights, ", ", stored),
                                                   "; in the model it has ",
                                                   absl::StrJoin(to.variables, ", ", wanted)));
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
  CAIRN_ASSIGN_OR_RETURN(std::vector<FileLayer> stored, LayersOf(file));
  const std::vector<ModelLayer> layers = LayersOf(model);
  DivideNested(layers, stored);
  const LayerKey key = ChooseKey(stored, layers);
  FileIndex index = IndexBy(key, stored);
  for (const ModelLayer& layer : layers) {
    const auto found = index.find(KeyOf(layer, key));
    if (found == index.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("has no layer '", KeyOf(layer, LayerKey::kName), "'; it has ",
                       absl::StrJoin(stored, ", ", [key](std::string* out, const FileLayer& other) {
                         absl::StrAppend(out, KeyOf(other, key));
                       })));
    }
    CAIRN_RETURN_IF_ERROR(ReadLayer(file, *found->second, layer, parameters));
    index.erase(found);
  }
  for (const auto& [name, layer] : index) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer '", name, "' (", layer->path, ") is not in the model"));
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
