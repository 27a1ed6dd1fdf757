// Quotes text as one word, or one scalar, of the languages that `cairn cluster generate` writes. Quoted text
// reads back as exactly the same bytes.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cairn::cli {

// A word of bash on one line: control characters, and bytes that are not UTF-8, are escaped as in $'\n'.
std::string QuoteForShell(absl::string_view text);

// A string of YAML 1.1 and 1.2 on one line. `text` must be UTF-8.
std::string QuoteForYaml(absl::string_view text);
// As QuoteForYaml(), but a name that YAML reads as a string stays unquoted: not `yes`, `null` or `1e3`.
std::string NameForYaml(absl::string_view name);

// Whether every byte belongs to a valid UTF-8 character.
bool IsUtf8(absl::string_view text);
// Whether YAML may hold it in a block scalar, line by line: UTF-8 without control characters other than
// newlines.
bool IsPlainText(absl::string_view text);

// For strings in which Compose substitutes ${VARIABLES}, or Kubernetes $(VARIABLES): both read $$ as $.
std::string EscapeDollars(absl::string_view text);

}  // namespace cairn::cli
