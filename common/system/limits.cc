#include "common/system/limits.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/core/files.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/memory/cgroup.h"
#include "common/memory/memory_size.h"
#include "common/system/process_usage.h"
#include "common/system/thread.h"

namespace cairn {
namespace {

rlimit LimitOf(int resource) {
  rlimit limit{};
  getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  return limit;
}

int64_t AsCount(rlim_t limit) {
  return static_cast<int64_t>(std::min<rlim_t>(limit, INT32_MAX));  // a descriptor is an int
}

std::string InWords(rlim_t value) {
  return value == RLIM_INFINITY ? "unlimited" : absl::StrCat(value);
}

// The stack size of a thread with default attributes.
int64_t StackBytes() {
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (pthread_getattr_default_np(&attributes) != 0) return 0;
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return static_cast<int64_t>(bytes);
}

// The file is the same in both versions of control groups: "max" or a number.
std::optional<double> TasksOf(const std::string& directory) {
  const auto text = ReadFile(absl::StrCat(directory, "/pids.max"));
  double tasks = 0;
  if (!text.ok() || !absl::SimpleAtod(absl::StripAsciiWhitespace(*text), &tasks)) return std::nullopt;
  return tasks;
}

// Threads that wait until all have been started.
class Rehearsal {
 public:
  ~Rehearsal() {
    MutexLock lock(mutex_);
    over_ = true;
    changed_.NotifyAll();
  }
  absl::Status Add() {
    auto thread = Thread::Start("rehearsal", [this] {
      MutexLock lock(mutex_);
      while (!over_) changed_.Wait(mutex_);
    });
    if (thread.ok()) threads_.push_back(*std::move(thread));
    return thread.status();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;  // declared last, so joined first
};

}  // namespace

int64_t DescriptorLimit() {
  return AsCount(LimitOf(RLIMIT_NOFILE).rlim_cur);
}

int64_t HighestDescriptorLimit() {
  return AsCount(LimitOf(RLIMIT_NOFILE).rlim_max);
}

std::string RaiseDescriptorLimit() {
  const rlimit before = LimitOf(RLIMIT_NOFILE);
  const rlimit raised = {.rlim_cur = before.rlim_max, .rlim_max = before.rlim_max};
  if (before.rlim_cur == before.rlim_max || setrlimit(RLIMIT_NOFILE, &raised) != 0) return "";
  return absl::StrCat("limit of open files raised from ", InWords(before.rlim_cur), " to ",
                      InWords(raised.rlim_cur), " (ulimit -n)");
}

std::optional<int64_t> AddressSpaceLimit() {
  const rlim_t limit = LimitOf(RLIMIT_AS).rlim_cur;
  if (limit >= static_cast<rlim_t>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(limit);
}

absl::Status CheckAddressSpace(int threads, int64_t bytes) {
  const std::optional<int64_t> limit = AddressSpaceLimit();
  if (!limit.has_value()) return absl::OkStatus();
  const int64_t needed = UsageOfThisProcess().virtual_bytes + threads * StackBytes() + bytes;
  if (needed <= *limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the address space is limited to ", InGiB(static_cast<double>(*limit)), ", at least ",
                   InGiB(static_cast<double>(needed)), " are needed for ", threads,
                   " threads and their buffers: raise the limit (ulimit -v) from ", *limit >> 10, " to ",
                   (needed >> 10) + 1, " KiB or more"));
}

absl::Status CheckLimits(int64_t files, int threads) {
  if (DescriptorLimit() < files) {
    return absl::ResourceExhaustedError(absl::StrCat("at most ", DescriptorLimit(),
                                                     " files may be open (ulimit -n), at least ", files,
                                                     " are needed: raise the limit"));
  }
  Rehearsal rehearsal;
  for (int i = 0; i < threads; ++i) {
    if (const absl::Status status = rehearsal.Add(); !status.ok()) {
      return Annotate(status,
                      absl::StrCat("only ", i, " more threads can be started, ", threads, " are needed"));
    }
  }
  return absl::OkStatus();
}

std::string ThreadLimits() {
  std::vector<std::string> limits = {absl::StrCat("processes and threads of this user ",
                                                  InWords(LimitOf(RLIMIT_NPROC).rlim_cur), " (ulimit -u)")};
  const auto bytes = [&](const char* what, int resource, const char* flag) {
    const rlim_t limit = LimitOf(resource).rlim_cur;
    if (limit == RLIM_INFINITY) return;
    limits.push_back(absl::StrCat(what, " ", limit >> 10, " KiB (ulimit -", flag, ")"));
  };
  bytes("address space", RLIMIT_AS, "v");
  bytes("data", RLIMIT_DATA, "d");
  bytes("stack of each thread", RLIMIT_STACK, "s");
  if (const auto tasks = TightestCgroupLimit("", "pids", TasksOf, TasksOf)) {
    limits.push_back(absl::StrCat("threads of the control group ", *tasks, " (pids.max)"));
  }
  return absl::StrCat("raise the limit that is reached: ", absl::StrJoin(limits, ", "));
}

}  // namespace cairn
