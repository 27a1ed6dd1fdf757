// Memory sizes: parsing and printing, and how much memory this process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Parses "4GiB", "500MB" or "1000000" into bytes: a whole or decimal number and a unit, B, KB, MB, GB, TB
// (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024) or none for bytes. INVALID_ARGUMENT, quoting `text`,
// if it is not of this form or is less than one byte.
absl::StatusOr<int64_t> ParseMemorySize(absl::string_view text);

// "1.5 GiB", with three significant digits; smaller sizes in MiB, KiB or B.
std::string InGiB(double bytes);

// The smaller of this machine's memory and the memory limit of this process's control group, in bytes.
int64_t UsableMemory();

// The tightest memory limit, in bytes, of this process's control group and its ancestors (version 1 or 2);
// nullopt if unlimited. `root` is prepended to /proc and /sys: "" in production, a directory in tests.
std::optional<double> MemoryLimitOfCgroups(const std::string& root);

}  // namespace cairn
