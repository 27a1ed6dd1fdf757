// The models of keras_hub that consist of a backbone and a head.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"

namespace cairn::nn {

// Each returns the config of a Functional model, in which the backbone is a model.
absl::StatusOr<nlohmann::json> ExpandCausalLm(const nlohmann::json& config);
absl::StatusOr<nlohmann::json> ExpandBertTextClassifier(const nlohmann::json& config);

}  // namespace cairn::nn
