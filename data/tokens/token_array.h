// The ids of a file of tokens, in the element type of the file.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "data/array.h"

namespace cairn::data {

// Reads the tokens of a .bin file, plain integers of type `bin_type` without a header, or of a .npy file of integers
// along one axis. Plain files are mapped. INVALID_ARGUMENT or NOT_FOUND naming the file.
absl::StatusOr<Array> ReadTokens(const std::string& path, ElementType bin_type);

// The largest id of `tokens`. Reads all of them. INVALID_ARGUMENT naming the position and the value of an id below 0 or
// above kLargestLabel.
absl::StatusOr<int64_t> LargestToken(const Array& tokens);

}  // namespace cairn::data
