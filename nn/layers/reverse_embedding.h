// The layer of the reverse calls of a ReversibleEmbedding.
#pragma once

#include "absl/strings/string_view.h"

namespace cairn::nn {

// Ends the name of the layer; the name of the embedding is before it.
inline constexpr absl::string_view kReverseSuffix = "/reverse";

}  // namespace cairn::nn
