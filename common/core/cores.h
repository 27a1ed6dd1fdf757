// How many cores this process may keep busy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cairn {

// The cores that the scheduler lets us run on (taskset, cpuset), or fewer where a control group's quota
// allows less (docker run --cpus, a Kubernetes limit). At least 1.
int UsableCores();

// The largest number of threads that a flag may ask for.
inline constexpr int kMaxThreads = 1024;

// A warning for the user if `threads` compute threads exceed the usable cores, which only slows the threads
// down. Empty if there are enough cores.
std::string WarnOfThreads(int64_t threads);

// Keeps the calling thread, and the threads that it makes from now on, on `count` of the cores that it may
// run on: from the `first` of them on, beginning anew behind the last. Where there are no more than that,
// nothing changes.
void StayOnCores(int first, int count);

// The tightest CPU quota, in cores, of our control group and those above it, version 1 or 2; none when
// unlimited. `root` stands before /proc and /sys: "" in earnest, a directory in tests.
std::optional<double> CpuQuota(const std::string& root);

}  // namespace cairn
