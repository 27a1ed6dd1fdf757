#include "nn/hub/hub_graph.h"

#include <utility>

namespace cairn::nn {

using nlohmann::json;
namespace {

// In a file that is read, these numbers are unsigned.
json FirstOutputOf(json layer) {
  return json::array({std::move(layer), 0u, 0u});
}

}  // namespace

std::string HubGraph::Input(const std::string& name, int axes, const char* dtype) {
  const json shape(std::vector<json>(static_cast<size_t>(axes)));  // nulls
  layers_.push_back({{"class_name", "InputLayer"},
                     {"config", {{"name", name}, {"batch_shape", shape}, {"dtype", dtype}}},
                     {"inbound_nodes", json::array()}});
  inputs_.push_back(FirstOutputOf(name));
  return name;
}

std::string HubGraph::Add(const char* class_name, const std::string& name, json config,
                          std::vector<std::string> inputs, json kwargs) {
  config["name"] = name;
  json args = json::array();
  for (std::string& input : inputs) args.push_back(std::move(input));
  layers_.push_back({{"class_name", class_name},
                     {"config", std::move(config)},
                     {"inbound_nodes", json::array({{{"args", args}, {"kwargs", std::move(kwargs)}}})}});
  return name;
}

void HubGraph::SetBuildShape(const json& shape) {
  layers_.back()["build_config"] = {{"input_shape", shape}};
}

std::string HubGraph::AddRead(json layer, json args) {
  std::string name = layer["config"]["name"].get<std::string>();
  layer["inbound_nodes"] = json::array({{{"args", std::move(args)}, {"kwargs", json::object()}}});
  layers_.push_back(std::move(layer));
  return name;
}

json HubGraph::Config(const std::string& name, std::vector<json> outputs) const {
  json ends = json::array();
  for (json& output : outputs) {
    ends.push_back(output.is_string() ? FirstOutputOf(std::move(output)) : std::move(output));
  }
  return {{"name", name}, {"layers", layers_}, {"input_layers", inputs_}, {"output_layers", std::move(ends)}};
}

}  // namespace cairn::nn
