// The calls of a layer of keras_hub, whose tensors may be positional or keyword arguments.
#pragma once

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::nn {

struct HubCall {
  std::vector<std::string>
      tensors{};       // the names of the arguments that are tensors, in the order of the parameters
  bool causal = true;  // use_causal_mask

  bool has(const char* tensor) const;
};

// Rewrites the calls of `layer` so that `args` has exactly the tensors. `parameters`: the arguments that may be
// tensors, in Keras' order. A layer of a Sequential has no calls; its only tensor is the first parameter.
// INVALID_ARGUMENT if calls have other arguments.
absl::StatusOr<HubCall> NormalizeHubCalls(std::initializer_list<const char*> parameters,
                                          nlohmann::json& layer);

}  // namespace cairn::nn
