#include "common/system/cores.h"

#include <sched.h>

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/files.h"
#include "common/memory/cgroup.h"

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

// Version 1: two files; a quota of -1 means no limit.
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

}  // namespace

std::optional<double> CpuQuota(const std::string& root) {
  return TightestCgroupLimit(root, "cpu", QuotaOfVersion1, QuotaOfVersion2);
}

void StayOnCores(int first, int count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) <= count) return;
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  CPU_ZERO(&set);
  for (int i = 0; i < count; ++i) CPU_SET(cores[static_cast<size_t>(first + i) % cores.size()], &set);
  sched_setaffinity(0, sizeof set, &set);  // best effort: an unbound thread still works
}

std::string WarnOfThreads(int64_t threads) {
  const int cores = UsableCores();
  if (threads <= cores) return "";
  return absl::StrCat("--threads ", threads, ": this process may use ", cores,
                      cores == 1 ? " core" : " cores",
                      "; threads that share a core wait for each other, and training becomes much slower");
}

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const std::optional<double> quota = CpuQuota("");
  return std::max(1, quota.has_value() ? std::min(allowed, static_cast<int>(*quota)) : allowed);
}

}  // namespace cairn
