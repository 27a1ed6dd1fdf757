#include "common/memory/cgroup.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/core/files.h"

namespace cairn {
namespace {

// The smallest limit of `path` below `mount` and of all its ancestors up to the mount. In a container, `path`
// may be a path of the host that does not exist here; in that case only the limit of the mount itself counts.
std::optional<double> Tightest(const std::string& mount, std::string path, CgroupLimit limit_of) {
  std::optional<double> tightest;
  while (true) {
    const std::optional<double> limit = limit_of(absl::StrCat(mount, path));
    if (limit.has_value()) tightest = std::min(limit, tightest.has_value() ? tightest : limit);
    if (path.empty()) return tightest;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

std::optional<double> TightestCgroupLimit(const std::string& root, absl::string_view controller,
                                          CgroupLimit version1, CgroupLimit version2) {
  const auto groups = ReadFile(absl::StrCat(root, "/proc/self/cgroup"));
  if (!groups.ok()) return std::nullopt;
  const std::string mount = absl::StrCat(root, "/sys/fs/cgroup");
  for (absl::string_view line : absl::StrSplit(*groups, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields =
        absl::StrSplit(line, absl::MaxSplits(':', 2));  // id:controllers:path
    if (fields.size() != 3 || !absl::StartsWith(fields[2], "/")) continue;
    const std::string path = std::string(absl::StripSuffix(fields[2], "/"));
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) != controllers.end()) {
      const auto limit = Tightest(absl::StrCat(mount, "/", controller), path, version1);
      return limit.has_value() ? limit : Tightest(absl::StrCat(mount, "/", fields[1]), path, version1);
    }
    if (fields[1].empty()) {
      const auto limit = Tightest(mount, path, version2);
      if (limit.has_value()) return limit;
    }
  }
  return std::nullopt;
}

}  // namespace cairn
