// Builds words for messages.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cairn {

// "1 worker", "2 workers", "0 workers". `noun` must form its plural with an s.
inline std::string Counted(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// "a worker", "an evaluator".
inline std::string WithArticle(absl::string_view noun) {
  const bool vowel = !noun.empty() && absl::string_view("aeiou").find(noun[0]) != absl::string_view::npos;
  return absl::StrCat(vowel ? "an " : "a ", noun);
}

}  // namespace cairn
