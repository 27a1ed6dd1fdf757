// The edit distance of two words, for "did you mean" hints. Pure; any thread.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace cairn {

// The Levenshtein distance: the smallest number of characters to insert, remove or replace to turn `a` into
// `b`.
size_t EditDistance(absl::string_view a, absl::string_view b);

}  // namespace cairn
