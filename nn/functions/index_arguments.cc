#include "nn/functions/index_arguments.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "nn/layer/keras_class.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

void RemoveNulls(json& layer) {
  const json calls = layer.value("inbound_nodes", json());
  if (!calls.is_array()) return;
  for (json& call : layer["inbound_nodes"]) {
    if (!call.is_object() || !call.contains("args") || !call["args"].is_array()) continue;
    json tensors = json::array();
    for (const json& argument : call["args"]) {
      if (!argument.is_null()) tensors.push_back(argument);
    }
    call["args"] = std::move(tensors);
  }
}

}  // namespace

absl::Status TakeIndex(json& layer) {
  if (!layer.is_object() || !IsKerasFunction(layer)) return absl::OkStatus();
  const json class_name = layer.value("class_name", json());
  if (class_name == "LayerNorm" || class_name == "RMSNorm") RemoveNulls(layer);
  if (class_name != "GetItem" && class_name != "Slice") return absl::OkStatus();
  const json calls = layer.value("inbound_nodes", json());
  const json args =
      calls.is_array() && calls.size() == 1 && calls[0].is_object() ? calls[0].value("args", json()) : json();
  if (!args.is_array() || args.size() != 2 || !layer.value("config", json()).is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", class_name.get<std::string>(), " needs one call, with a tensor and an index"));
  }
  layer["config"][class_name == "GetItem" ? "index" : "start_indices"] = args[1];
  layer["inbound_nodes"][0]["args"] = json::array({args[0]});
  return absl::OkStatus();
}

}  // namespace cairn::nn
