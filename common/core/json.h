// Parses JSON without exceptions. Include <nlohmann/json.hpp> where the document is read.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Parses `text`; `//` and `/* */` comments are skipped. INVALID_ARGUMENT naming `source` ("cluster.json"),
// and the line if it is known, for bad syntax; for a key that appears twice in an object (a JSON library
// silently keeps one of them); and for values nested more than 200 deep.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, absl::string_view source);

// JSON as Python writes it: Infinity and -Infinity outside strings become the largest numbers of double, which are
// infinite as float.
std::string WithFiniteNumbers(absl::string_view text);

// The line on which each array element of a valid document begins, by its JSON pointer ("/config/layers/3").
std::map<std::string, int64_t> LinesOfElements(absl::string_view text);

}  // namespace cairn
