// How many slips of the finger two words are apart: for "did you mean". Pure; any thread.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace cairn {

// Levenshtein's distance: characters to insert, to remove or to replace.
size_t EditDistance(absl::string_view a, absl::string_view b);

}  // namespace cairn
