#include "nn/hub/reverse_calls.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nn/layers/reverse_embedding.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// Removes the argument `reverse` of a call of Keras 3, and returns it.
bool TakeReverse(json& call) {
  bool reverse = false;
  if (!call.is_object()) return reverse;
  if (call.contains("args") && call["args"].is_array() && call["args"].size() == 2 &&
      call["args"][1].is_boolean()) {
    reverse = call["args"][1].get<bool>();
    call["args"].erase(1);
  }
  if (call.contains("kwargs") && call["kwargs"].is_object() && call["kwargs"].contains("reverse") &&
      call["kwargs"]["reverse"].is_boolean()) {
    reverse = call["kwargs"]["reverse"].get<bool>();
    call["kwargs"].erase("reverse");
  }
  return reverse;
}

}  // namespace

std::string ReverseLayerOf(absl::string_view layer) {
  return absl::StrCat(layer, kReverseSuffix);
}

json TakeReverseCalls(json& layer, std::vector<SplitCall>& calls) {
  if (layer.value("class_name", json()) != "ReversibleEmbedding") return nullptr;
  const json config = layer.value("config", json());
  if (!layer.contains("inbound_nodes") || !layer["inbound_nodes"].is_array() || !config.is_object() ||
      !config.contains("name") || !config["name"].is_string()) {
    return nullptr;
  }
  json lookups = json::array(), reversed = json::array();
  for (json& call : layer["inbound_nodes"]) {
    const bool reverse = TakeReverse(call);
    json& list = reverse ? reversed : lookups;
    calls.push_back({.reverse = reverse, .number = static_cast<int64_t>(list.size())});
    list.push_back(std::move(call));
  }
  layer["inbound_nodes"] = std::move(lookups);
  if (reversed.empty()) return nullptr;
  json reverse = layer;
  reverse["class_name"] = "ReverseEmbedding";
  reverse["config"]["name"] = reverse["name"] = ReverseLayerOf(config["name"].get<std::string>());
  reverse["inbound_nodes"] = std::move(reversed);
  return reverse;
}

}  // namespace cairn::nn
