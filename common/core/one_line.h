// Makes text of unknown origin safe for one line of a log.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cairn {

// Escapes control characters ("\n", "\x1b") and keeps at most 16 KiB: parts of the text may come from a peer,
// which must not be able to forge lines or fill the disk.
std::string OneLine(absl::string_view text);
// In double quotes, with escapes for everything but printable UTF-8.
std::string Quoted(absl::string_view text);

}  // namespace cairn
