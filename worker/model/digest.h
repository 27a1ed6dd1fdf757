// SHA-256, in hex.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "nn/model.h"

namespace cairn::worker {

std::string Sha256Hex(absl::string_view bytes);

// The digest of all variables in the order of their names, as little-endian float32: equal for equal
// parameters, on any cluster. `parameters` [model.num_parameters()].
std::string ParametersSha256(const nn::Model& model, absl::Span<const float> parameters);

}  // namespace cairn::worker
