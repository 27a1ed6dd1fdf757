#include "worker/model/model_difference.h"

#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/core/json.h"

namespace cairn::worker {
namespace {

using nlohmann::json;

std::map<std::string, Shape> ShapesOf(const nn::Model& model) {
  std::map<std::string, Shape> shapes;
  for (const nn::ModelVariable& variable : model.variables()) shapes[variable.name] = variable.shape;
  return shapes;
}

std::string DifferenceOfVariables(const nn::Model& ours, const nn::Model& theirs) {
  const auto there = ShapesOf(theirs), here = ShapesOf(ours);
  for (const auto& [name, shape] : here) {
    const auto found = there.find(name);
    if (found == there.end()) return absl::StrCat("'", name, "' ", shape.ToString(), " exists only here");
    if (found->second != shape) {
      return absl::StrCat("'", name, "' is ", shape.ToString(), " here, ", found->second.ToString(),
                          " there");
    }
  }
  for (const auto& [name, shape] : there) {
    if (here.count(name) == 0) return absl::StrCat("'", name, "' ", shape.ToString(), " exists only there");
  }
  return "";
}

const json* LayersOf(const json& model) {
  const auto config = model.find("config");
  if (config == model.end() || !config->is_object()) return nullptr;
  const auto layers = config->find("layers");
  return layers == config->end() || !layers->is_array() ? nullptr : &*layers;
}

std::string NameOf(const json& layer) {
  const auto config = layer.find("config");
  return config == layer.end() ? "?" : config->value("name", layer.value("class_name", std::string("?")));
}

// The first setting of one layer that differs: "layer 'dense': activation is "relu" here, "tanh" there".
std::string DifferenceOfSettings(const json& here, const json& there) {
  const std::string layer = absl::StrCat("layer '", NameOf(here), "'");
  const json none = json::object();
  const json& ours = here.contains("config") ? here["config"] : none;
  const json& theirs = there.contains("config") ? there["config"] : none;
  for (const auto& [key, value] : ours.items()) {
    const json other = theirs.value(key, json());
    if (other != value)
      return absl::StrCat(layer, ": ", key, " is ", value.dump(), " here, ", other.dump(), " there");
  }
  return absl::StrCat(layer, " has different settings");
}

std::string DifferenceOfLayers(const json& ours, const json& theirs) {
  const json *here = LayersOf(ours), *there = LayersOf(theirs);
  if (here == nullptr || there == nullptr) return "";
  for (size_t i = 0; i < here->size() && i < there->size(); ++i) {
    if ((*here)[i] != (*there)[i]) return DifferenceOfSettings((*here)[i], (*there)[i]);
  }
  if (here->size() == there->size()) return "";
  return absl::StrCat(here->size(), " layers here, ", there->size(), " there");
}

}  // namespace

std::string DescribeDifference(const nn::Model& ours, absl::string_view their_json) {
  const auto theirs = nn::Model::FromJson(their_json, "model.json");
  if (theirs.ok()) {
    if (std::string text = DifferenceOfVariables(ours, *theirs); !text.empty()) return text;
  }
  const auto here = ParseJson(ours.canonical_json(), "model"), there = ParseJson(their_json, "model");
  if (!here.ok() || !there.ok() || !here->is_object() || !there->is_object()) return "";
  return DifferenceOfLayers(*here, *there);
}

}  // namespace cairn::worker
