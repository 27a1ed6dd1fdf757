#include "worker/adapt/unadapted_layers.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/core/status.h"
#include "nn/layers/id_layer.h"
#include "worker/adapt/bin_boundaries.h"
#include "worker/export/model_layers.h"

namespace cairn::worker {
namespace {

using nlohmann::json;

// The field that a class of layers lacks before it is adapted; null for other classes.
const char* FieldOf(absl::string_view class_name) {
  if (class_name == "StringLookup" || class_name == "IntegerLookup" || class_name == "TextVectorization") {
    return "vocabulary";
  }
  if (class_name == "Normalization") return "mean";
  return class_name == "Discretization" ? "bin_boundaries" : nullptr;
}

std::string TextOf(const json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The name of a layer, or "" if the file has none.
std::string NameOf(const json& layer) {
  const auto config = layer.find("config");
  const std::string name = config != layer.end() && config->is_object() ? TextOf(*config, "name") : "";
  return name.empty() ? TextOf(layer, "name") : name;
}

// `outer`: the names of the models around `model`, each with a slash behind it.
absl::Status AppendLayers(const std::string& outer, json& model, std::vector<UnadaptedLayer>& layers) {
  return ForEachLayer(model, [&](json& layer) -> absl::Status {
    if (!layer.is_object()) return absl::OkStatus();
    if (IsModel(layer)) {
      const size_t before = layers.size();
      CAIRN_RETURN_IF_ERROR(AppendLayers(absl::StrCat(outer, NameOf(layer), "/"), layer, layers));
      if (!NameOf(layer).empty() || layers.size() == before) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat(layers[before].Describe(), ": is in a model within the model that has no name"));
    }
    const std::string class_name = TextOf(layer, "class_name");
    const char* const field = FieldOf(class_name);
    if (field == nullptr) return absl::OkStatus();
    json& config = layer["config"];
    if (config.is_null()) config = json::object();
    if (!config.is_object() || !config.value(field, json()).is_null()) return absl::OkStatus();
    std::string name = NameOf(layer);
    if (name.empty()) name = absl::StrCat(class_name, " ", layers.size() + 1);
    UnadaptedLayer found{.name = absl::StrCat(outer, name),
                         .own_name = std::move(name),
                         .class_name = class_name,
                         .config = &config};
    if (absl::c_any_of(layers, [&](const auto& other) { return other.Describe() == found.Describe(); }))
      return absl::InvalidArgumentError(absl::StrCat("has two times a ", found.Describe()));
    layers.push_back(std::move(found));
    return absl::OkStatus();
  });
}

// The first of `tokens` that has no special meaning.
json UsualToken(const json& tokens, const json& config) {
  return *absl::c_find_if(tokens, [&config](const json& token) {
    return token != config.value("mask_token", json()) && token != config.value("oov_token", json());
  });
}

// As many as adapt() finds, so that the layers behind have their shapes.
json UsualBoundaries(const json& num_bins) {
  json boundaries = json::array({0.0});
  if (num_bins.is_number_integer() && num_bins <= kMaxBins) {
    for (int64_t i = 1; i + 1 < num_bins.get<int64_t>(); ++i) boundaries.push_back(static_cast<double>(i));
  }
  return boundaries;
}

}  // namespace

bool WeighsTokens(const json& config) {
  const json mode = config.value("output_mode", json());
  if (!mode.is_string()) return false;
  const std::string name = absl::AsciiStrToLower(mode.get_ref<const std::string&>());
  return name == "tf_idf" || name == "tf-idf";
}

std::string UnadaptedLayer::Describe() const {
  return nn::IdLayer::What(name, class_name);
}

absl::StatusOr<std::vector<UnadaptedLayer>> FindUnadaptedLayers(json& model) {
  std::vector<UnadaptedLayer> layers;
  CAIRN_RETURN_IF_ERROR(AppendLayers("", model, layers));
  return layers;
}

void AddPlaceholders(const std::vector<UnadaptedLayer>& layers) {
  for (const UnadaptedLayer& layer : layers) {
    json& config = *layer.config;
    config["name"] = layer.own_name;
    if (layer.class_name == "Normalization") continue;  // its statistics are variables
    if (layer.class_name == "Discretization") {
      config["bin_boundaries"] = UsualBoundaries(config.value("num_bins", json()));
    } else {
      const bool integers = layer.class_name == "IntegerLookup";
      config["vocabulary"] =
          json::array({UsualToken(integers ? json{0, 1, 2} : json{"a", "b", "c"}, config)});
    }
    if (WeighsTokens(config)) config["idf_weights"] = json::array({1.0});
  }
}

}  // namespace cairn::worker
