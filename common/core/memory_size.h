// Sizes of memory: as users write them, and how much this process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// "4GiB", "500MB" or "1000000": a number, whole or decimal, and B, KB, MB, GB, TB (powers of 1000), KiB, MiB,
// GiB, TiB (powers of 1024) or nothing, for bytes. INVALID_ARGUMENT quotes what is none, or less than a byte.
absl::StatusOr<int64_t> ParseMemorySize(absl::string_view text);

// "1.5 GiB": three digits that count.
std::string InGiB(double bytes);

// Bytes of this machine's memory, or of our control group's limit where that is lower.
int64_t UsableMemory();

// The tightest limit, in bytes, of our control group and those above it, version 1 or 2; none when unlimited.
// `root` stands before /proc and /sys: "" in earnest, a directory in tests.
std::optional<double> MemoryLimitOfCgroups(const std::string& root);

}  // namespace cairn
