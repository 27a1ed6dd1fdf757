// The entries of layers in the JSON of a model. Nothing in the JSON is trusted. Any thread.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "common/core/status.h"

namespace cairn::worker {

// Whether the entry of a layer is that of a model within the model.
inline bool IsModel(const nlohmann::json& layer) {
  const nlohmann::json config =
      layer.is_object() ? layer.value("config", nlohmann::json()) : nlohmann::json();
  return config.is_object() && config.contains("layers");
}

// Calls `visit(layer)` for each entry of the model's list of layers, not for those of models within it, until one
// returns an error.
template <typename Visit>
absl::Status ForEachLayer(nlohmann::json& model, Visit visit) {
  if (!model.is_object() || !model.contains("config")) return absl::OkStatus();
  nlohmann::json& config = model["config"];
  if (config.is_object() && !config.contains("layers")) return absl::OkStatus();
  nlohmann::json& layers = config.is_object() ? config["layers"] : config;
  if (!layers.is_array()) return absl::OkStatus();
  for (nlohmann::json& layer : layers) CAIRN_RETURN_IF_ERROR(visit(layer));
  return absl::OkStatus();
}

}  // namespace cairn::worker
