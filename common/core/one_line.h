// Text of unknown origin as one line of a log.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cairn {

// Control characters escaped ("\n", "\x1b"), at most 16 KiB: parts of the text may come from a peer, which
// must not forge lines or fill the disk.
std::string OneLine(absl::string_view text);

}  // namespace cairn
