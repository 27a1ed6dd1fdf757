// Quotes text as one word, or one scalar, of the languages that `cairn cluster generate` writes. Quoted text
// reads back as exactly the same bytes.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cairn::cli {

// Quotes a word of bash on one line. Control characters, and bytes that are not UTF-8, are escaped as in
// $'\n'.
std::string QuoteForShell(absl::string_view text);

// Quotes a string for YAML 1.1 and 1.2 on one line. `text` must be UTF-8.
std::string QuoteForYaml(absl::string_view text);
// Like QuoteForYaml(), but leaves a name unquoted if YAML reads it as a string: `cairn`, but not `yes`,
// `null` or `1e3`.
std::string NameForYaml(absl::string_view name);

// Whether every byte belongs to a valid UTF-8 character.
bool IsUtf8(absl::string_view text);
// Whether a YAML block scalar can contain the text line by line: it is UTF-8 and has no control characters
// other than newlines.
bool IsPlainText(absl::string_view text);

// Writes $$ for $, for strings in which Compose substitutes ${VARIABLES} or Kubernetes $(VARIABLES): both
// read $$ as $.
std::string EscapeDollars(absl::string_view text);

}  // namespace cairn::cli
