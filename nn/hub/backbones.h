// The layers of the backbones of keras_hub, and of the models around them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"

namespace cairn::nn {

// Each returns the config of a Functional model.
absl::StatusOr<nlohmann::json> ExpandGpt2Backbone(const nlohmann::json& config);
absl::StatusOr<nlohmann::json> ExpandBertBackbone(const nlohmann::json& config);
absl::StatusOr<nlohmann::json> ExpandLlamaBackbone(const nlohmann::json& config);

}  // namespace cairn::nn
