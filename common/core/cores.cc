#include "common/core/cores.h"

#include <sched.h>

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/core/files.h"

namespace cairn {
namespace {

// Version 2: one file, "max 100000" or "150000 100000".
std::optional<double> QuotaOfVersion2(const std::string& directory) {
  const auto text = ReadFile(absl::StrCat(directory, "/cpu.max"));
  if (!text.ok()) return std::nullopt;
  const std::vector<std::string> words = absl::StrSplit(*text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  double quota = 0, period = 0;
  if (words.size() != 2 || !absl::SimpleAtod(words[0], &quota) || !absl::SimpleAtod(words[1], &period)) {
    return std::nullopt;
  }
  return period > 0 && quota > 0 ? std::optional<double>(quota / period) : std::nullopt;
}

// Version 1: two files; a quota of -1 is none.
std::optional<double> QuotaOfVersion1(const std::string& directory) {
  const auto quota_text = ReadFile(absl::StrCat(directory, "/cpu.cfs_quota_us"));
  const auto period_text = ReadFile(absl::StrCat(directory, "/cpu.cfs_period_us"));
  double quota = 0, period = 0;
  if (!quota_text.ok() || !period_text.ok() || !absl::SimpleAtod(*quota_text, &quota) ||
      !absl::SimpleAtod(*period_text, &period)) {
    return std::nullopt;
  }
  return period > 0 && quota > 0 ? std::optional<double>(quota / period) : std::nullopt;
}

// Smallest of `quota_of` over `path` below `mount` and all directories above it up to the mount. In a
// container the path may be the host's and not exist; then only the mount itself speaks.
template <typename QuotaOf>
std::optional<double> Tightest(const std::string& mount, std::string path, QuotaOf quota_of) {
  std::optional<double> tightest;
  while (true) {
    const std::optional<double> quota = quota_of(absl::StrCat(mount, path));
    if (quota.has_value()) tightest = std::min(quota, tightest.has_value() ? tightest : quota);
    if (path.empty()) return tightest;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

std::optional<double> CpuQuota(const std::string& root) {
  const auto groups = ReadFile(absl::StrCat(root, "/proc/self/cgroup"));
  if (!groups.ok()) return std::nullopt;
  const std::string mount = absl::StrCat(root, "/sys/fs/cgroup");
  for (absl::string_view line : absl::StrSplit(*groups, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields =
        absl::StrSplit(line, absl::MaxSplits(':', 2));  // id:controllers:path
    if (fields.size() != 3 || !absl::StartsWith(fields[2], "/")) continue;
    const std::string path = std::string(absl::StripSuffix(fields[2], "/"));
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end()) {
      const auto quota = Tightest(absl::StrCat(mount, "/cpu"), path, QuotaOfVersion1);
      return quota.has_value() ? quota : Tightest(absl::StrCat(mount, "/", fields[1]), path, QuotaOfVersion1);
    }
    if (fields[1].empty()) {
      const auto quota = Tightest(mount, path, QuotaOfVersion2);
      if (quota.has_value()) return quota;
    }
  }
  return std::nullopt;
}

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const std::optional<double> quota = CpuQuota("");
  return std::max(1, quota.has_value() ? std::min(allowed, static_cast<int>(*quota)) : allowed);
}

}  // namespace cairn
