#include "nn/model_graph.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/hub/keras_hub.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/keras_class.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 32;  // of models within models

bool IsModelClass(const json& class_name) {
  if (class_name == "Functional" || class_name == "Sequential" || class_name == "Model") return true;
  return class_name.is_string() &&
         (IsHubLayer(class_name.get<std::string>()) || IsHubModel(class_name.get<std::string>()));
}

// Keras 2.0 wrote the list of layers instead of a Sequential's config.
json ConfigOf(const json& document) {
  json config = document.value("config", json());
  return config.is_array() ? json{{"layers", std::move(config)}} : config;
}

std::vector<int64_t> LinesOfLayers(const json& document, const GraphPlace& place) {
  const bool only_layers = document.value("config", json()).is_array();
  const std::string list = absl::StrCat(place.pointer, only_layers ? "/config/" : "/config/layers/");
  std::vector<int64_t> lines;
  auto line = place.lines.find(absl::StrCat(list, 0));
  for (; line != place.lines.end(); line = place.lines.find(absl::StrCat(list, lines.size())))
    lines.push_back(line->second);
  return lines;
}

}  // namespace

absl::StatusOr<GraphLayer> LayerListReader::Read(const json& entry, size_t position) {
  const json class_name = entry.is_object() ? entry.value("class_name", json()) : json();
  GraphLayer layer;
  if (IsModelClass(class_name)) {
    CAIRN_ASSIGN_OR_RETURN(layer, ReadModel(entry, position));
    return layer;
  }
  CAIRN_ASSIGN_OR_RETURN(layer.read, builder_.layers().Read(entry, position, line(position), place_.scope));
  layer.read.groups = place_.groups;
  layer.read.groups.push_back(GroupOf(class_name.get<std::string>(), layer.read.local_name));
  return layer;
}

KerasGroup LayerListReader::GroupOf(const std::string& class_name, const std::string& layer) {
  if (place_.of_hub_layer) return {HubGroup(layer), layer};
  return {absl::StrCat("layers/", group_names_.Next(class_name)), layer};
}

absl::StatusOr<GraphLayer> LayerListReader::ReadModel(const json& as_written, size_t position) {
  json entry = as_written;
  for (const auto expand : {&ExpandHubLayer, &ExpandHubModel}) {
    const json name = entry.value("name", json());
    if (const auto status = expand(entry); !status.ok()) {
      return Annotate(status, absl::StrCat("layer ", name.is_null() ? json(position).dump() : name.dump(),
                                           " (", entry["class_name"].get<std::string>(), ")"));
    }
  }
  ConfigReader outer(entry);
  const std::string class_name = outer.String("class_name", "");
  const std::string device = outer.String("device", place_.scope.device);
  // The inner model is trained as a part of the outer one, whose compile_config counts.
  outer.Ignore(
      {"module", "registered_name", "build_config", "compile_config", "config", "name", "inbound_nodes"});
  const json config = entry.value("config", json());
  const json name = config.is_object() ? config.value("name", json()) : json();
  const json trainable = config.is_object() ? config.value("trainable", json()) : json();

  GraphLayer layer;
  ReadLayer& read = layer.read;
  read.local_name = name.is_string() && name != ""
                        ? name.get<std::string>()
                        : builder_.layers().UniqueName(class_name, place_.scope.prefix);
  read.name = absl::StrCat(place_.scope.prefix, read.local_name);
  read.where = absl::StrCat("layer '", read.name, "' (", class_name, ")",
                            line(position) > 0 ? absl::StrCat(", line ", line(position)) : "");
  if (const auto status = outer.Finish(); !status.ok()) return Annotate(status, read.where);
  if (place_.groups.size() >= kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat(read.where, ": is a model within ", kMaxDepth, " models, more are not supported"));
  }
  GraphPlace inner = {
      .lines = place_.lines,
      .pointer = absl::StrCat(place_.pointer, "/config/layers/", position),
      .scope = {.prefix = absl::StrCat(read.name, "/"),
                .trainable = trainable.is_boolean() ? trainable.get<bool>() : place_.scope.trainable,
                .device = device},
      .groups = place_.groups,
      .of_hub_layer = IsHubLayer(class_name)};
  inner.groups.push_back(GroupOf(class_name, read.local_name));
  auto graph = ReadModelGraph(entry, inner, builder_);
  if (!graph.ok()) return Annotate(graph.status(), read.where);
  layer.model = std::make_shared<const ModelGraph>(*std::move(graph));
  return layer;
}

absl::StatusOr<ModelGraph> ReadModelGraph(const json& document, const GraphPlace& place,
                                          ModelBuilder& builder) {
  const json config = ConfigOf(document);
  std::vector<int64_t> lines = LinesOfLayers(document, place);
  const json class_name = document.value("class_name", json("Sequential"));
  if (class_name == "Sequential") return ReadSequential(config, std::move(lines), place, builder);
  CAIRN_ASSIGN_OR_RETURN(ModelGraph graph, ReadFunctional(config, std::move(lines), place, builder));
  if (class_name != "Model") graph.class_name = class_name.get<std::string>();
  return graph;
}

}  // namespace cairn::nn
