// The layers of which the composite layers of keras_hub consist.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "nn/layer/config_reader.h"

namespace cairn::nn {

// Each returns the config of a Functional model, and rewrites the calls of `layer` for its inputs.
absl::StatusOr<nlohmann::json> ExpandTokenAndPositionEmbedding(nlohmann::json& layer);
absl::StatusOr<nlohmann::json> ExpandTransformerEncoder(nlohmann::json& layer);
absl::StatusOr<nlohmann::json> ExpandTransformerDecoder(nlohmann::json& layer);
absl::StatusOr<nlohmann::json> ExpandLlamaDecoder(nlohmann::json& layer);

// Copies the options of rotary positions, "rope_...", of a Llama model or layer to the config `to` of an inner layer.
void CopyRotaryOptions(ConfigReader& config, nlohmann::json& to);

}  // namespace cairn::nn
