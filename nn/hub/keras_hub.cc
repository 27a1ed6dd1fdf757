#include "nn/hub/keras_hub.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "nn/hub/backbones.h"
#include "nn/hub/tasks.h"
#include "nn/hub/transformer_layers.h"
#include "nn/layer/keras_class.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

struct LayerRow {
  absl::string_view class_name;
  absl::StatusOr<json> (*expand)(json& layer);
};
constexpr LayerRow kLayers[] = {{"LlamaTransformerDecoder", ExpandLlamaDecoder},
                                {"TokenAndPositionEmbedding", ExpandTokenAndPositionEmbedding},
                                {"TransformerDecoder", ExpandTransformerDecoder},
                                {"TransformerEncoder", ExpandTransformerEncoder}};

struct ModelRow {
  absl::string_view class_name;
  absl::StatusOr<json> (*expand)(const json& config);
};
constexpr ModelRow kModels[] = {
    {"BertBackbone", ExpandBertBackbone},   {"BertTextClassifier", ExpandBertTextClassifier},
    {"GPT2Backbone", ExpandGpt2Backbone},   {"GPT2CausalLM", ExpandCausalLm},
    {"LlamaBackbone", ExpandLlamaBackbone}, {"LlamaCausalLM", ExpandCausalLm}};

template <typename Rows>
const auto* FindRow(const Rows& rows, absl::string_view class_name) {
  for (const auto& row : rows) {
    if (row.class_name == class_name) return &row;
  }
  return static_cast<decltype(&rows[0])>(nullptr);
}

template <typename Rows>
std::string NamesOf(const Rows& rows) {
  return absl::StrJoin(rows, ", ",
                       [](std::string* out, const auto& row) { absl::StrAppend(out, row.class_name); });
}

std::string ClassOf(const json& object) {
  const json name = object.is_object() ? object.value("class_name", json()) : json();
  return name.is_string() ? name.get<std::string>() : "";
}

// Replaces the config of a layer or a model of keras_hub by that which expand(config) returns, unless it has been.
absl::Status Expand(json& object, absl::FunctionRef<absl::StatusOr<json>(const json& config)> expand) {
  const json config = object.value("config", json());
  if (config.is_object() && config.contains("layers")) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(CheckIsOfKeras(object));
  CAIRN_ASSIGN_OR_RETURN(json expanded, expand(config));
  expanded["trainable"] = config.is_object() ? config.value("trainable", json(true)) : json(true);
  object["config"] = std::move(expanded);
  return absl::OkStatus();
}

}  // namespace

bool IsHubLayer(absl::string_view class_name) {
  return FindRow(kLayers, class_name) != nullptr;
}

bool IsHubModel(absl::string_view class_name) {
  return FindRow(kModels, class_name) != nullptr;
}

std::string HubLayers() {
  return NamesOf(kLayers);
}

std::string HubModels() {
  return NamesOf(kModels);
}

absl::Status ExpandHubLayer(json& layer) {
  const LayerRow* const row = FindRow(kLayers, ClassOf(layer));
  if (row == nullptr) return absl::OkStatus();
  return Expand(layer, [&](const json&) { return row->expand(layer); });
}

absl::Status ExpandHubModel(json& model) {
  const ModelRow* const row = FindRow(kModels, ClassOf(model));
  if (row == nullptr) return absl::OkStatus();
  return Expand(model, row->expand);
}

std::string HubGroup(absl::string_view layer) {
  if (layer == "token_embedding" || layer == "position_embedding") return std::string(layer);
  const bool attention = layer == "self_attention" || layer == "cross_attention";
  return absl::StrCat("_", layer, attention ? "_layer" : "");
}

}  // namespace cairn::nn
