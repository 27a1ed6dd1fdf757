// The calls of a ReversibleEmbedding with reverse=True. They are read as calls of a layer of their own, "NAME/reverse".
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cairn::nn {

// Where a call of the layer is now.
struct SplitCall {
  bool reverse = false;
  int64_t number = 0;  // among those of its layer
};

std::string ReverseLayerOf(absl::string_view layer);

// Takes the reverse calls from the JSON of a ReversibleEmbedding, and returns the layer that has them; null for other
// layers, and if there are none. `calls` [call of the layer before].
nlohmann::json TakeReverseCalls(nlohmann::json& layer, std::vector<SplitCall>& calls);

}  // namespace cairn::nn
