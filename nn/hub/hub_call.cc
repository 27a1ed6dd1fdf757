#include "nn/hub/hub_call.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// Keras 2's call [[layer, call, output, kwargs], ...] in Keras 3's form.
json InKeras3Form(json call) {
  if (!call.is_array()) return call;
  json kwargs = json::object(), args = json::array();
  for (json& tensor : call) {
    if (tensor.is_array() && tensor.size() == 4 && tensor[3].is_object()) {
      kwargs.update(tensor[3]);
      tensor.erase(3);
    }
    args.push_back(std::move(tensor));
  }
  return {{"args", std::move(args)}, {"kwargs", std::move(kwargs)}};
}

// Whether a keyword argument has the value that it has by default.
bool IsDefault(const std::string& key, const json& value) {
  return value.is_null() || (key == "start_index" && value == 0) ||
         (key == "return_attention_scores" && value == false);
}

absl::StatusOr<HubCall> Normalize(std::initializer_list<const char*> parameters, json& call) {
  call = InKeras3Form(std::move(call));
  json args = call.is_object() ? call.value("args", json::array()) : json();
  json kwargs = call.is_object() ? call.value("kwargs", json::object()) : json();
  if (kwargs.is_null()) kwargs = json::object();
  if (!args.is_array() || !kwargs.is_object() || args.size() > parameters.size())
    return absl::InvalidArgumentError("inbound_nodes: a call has other arguments than the layer");
  HubCall read;
  json tensors = json::array();
  size_t position = 0;
  for (const char* const parameter : parameters) {
    json tensor = position < args.size() ? args[position] : json();
    ++position;
    if (kwargs.contains(parameter)) {
      if (!tensor.is_null())
        return absl::InvalidArgumentError(absl::StrCat("inbound_nodes: ", parameter, " is given twice"));
      tensor = std::move(kwargs[parameter]);
      kwargs.erase(parameter);
    }
    if (tensor.is_null()) continue;
    read.tensors.emplace_back(parameter);
    tensors.push_back(std::move(tensor));
  }
  if (!read.has(*parameters.begin()))
    return absl::InvalidArgumentError(absl::StrCat("inbound_nodes: a call has no ", *parameters.begin()));
  if (kwargs.contains("use_causal_mask")) {
    read.causal = kwargs["use_causal_mask"] == true;
    kwargs.erase("use_causal_mask");
  }
  json others = json::object();
  for (auto& [key, value] : kwargs.items()) {
    if (!IsDefault(key, value)) others[key] = value;
  }
  call = {{"args", std::move(tensors)}, {"kwargs", std::move(others)}};
  return read;
}

}  // namespace

bool HubCall::has(const char* tensor) const {
  return absl::c_linear_search(tensors, tensor);
}

absl::StatusOr<HubCall> NormalizeHubCalls(std::initializer_list<const char*> parameters, json& layer) {
  std::optional<HubCall> all;
  if (!layer.contains("inbound_nodes")) return HubCall{.tensors = {*parameters.begin()}};
  if (!layer["inbound_nodes"].is_array())
    return absl::InvalidArgumentError("inbound_nodes: expected a list of calls");
  for (json& call : layer["inbound_nodes"]) {
    CAIRN_ASSIGN_OR_RETURN(HubCall read, Normalize(parameters, call));
    if (all.has_value() && (all->tensors != read.tensors || all->causal != read.causal)) {
      return absl::InvalidArgumentError(
          "inbound_nodes: calls with different arguments are not supported: use a layer for each");
    }
    all = std::move(read);
  }
  if (!all.has_value()) return absl::InvalidArgumentError("inbound_nodes: required");
  return *std::move(all);
}

}  // namespace cairn::nn
