#include "common/memory/memory_size.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/files.h"
#include "common/memory/cgroup.h"

namespace cairn {
namespace {

constexpr std::pair<absl::string_view, double> kUnits[] = {
    {"", 1},      {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
    {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
// Far above the memory of any machine, and well within an int64_t.
constexpr double kMaxBytes = 0x1p60;

// Reads a memory limit. If there is no limit, the file contains "max", which is not a number, in control
// groups of version 2, and a number beyond any machine's memory in version 1.
std::optional<double> NumberIn(const std::string& path) {
  const auto text = ReadFile(path);
  double bytes = 0;
  if (!text.ok() || !absl::SimpleAtod(*text, &bytes) || !(bytes > 0)) return std::nullopt;
  return bytes;
}

}  // namespace

absl::StatusOr<int64_t> ParseMemorySize(absl::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const absl::string_view unit = text.substr(digits);
  const auto* known =
      std::find_if(std::begin(kUnits), std::end(kUnits), [&](const auto& row) { return row.first == unit; });
  double number = 0;
  if (known != std::end(kUnits) && absl::SimpleAtod(text.substr(0, digits), &number)) {
    const double bytes = number * known->second;
    if (bytes >= 1 && bytes <= kMaxBytes) return static_cast<int64_t>(bytes);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a memory size such as 4GiB, 500MB or 1000000 (bytes)"));
}

std::string InGiB(double bytes) {
  constexpr std::pair<const char*, double> kShown[] = {{"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}};
  for (const auto& [name, size] : kShown) {
    if (bytes >= size / 10) return absl::StrFormat("%.3g %s", bytes / size, name);
  }
  return absl::StrFormat("%.3g B", bytes);
}

std::optional<double> MemoryLimitOfCgroups(const std::string& root) {
  return TightestCgroupLimit(
      root, "memory",
      [](const std::string& directory) {
        return NumberIn(absl::StrCat(directory, "/memory.limit_in_bytes"));
      },
      [](const std::string& directory) { return NumberIn(absl::StrCat(directory, "/memory.max")); });
}

int64_t UsableMemory() {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
  const std::optional<double> limit = MemoryLimitOfCgroups("");
  return limit.has_value() && *limit < static_cast<double>(machine) ? static_cast<int64_t>(*limit) : machine;
}

}  // namespace cairn
