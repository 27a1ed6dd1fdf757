// How many cores this process may keep busy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cairn {

// The number of cores that the scheduler lets this process run on (taskset, cpuset), or that the quota of its
// control group allows (docker run --cpus, a Kubernetes limit), whichever is lower. At least 1.
int UsableCores();

// The largest number of threads that a flag may request.
inline constexpr int kMaxThreads = 1024;

// A warning for the user that `threads` compute threads are more than the usable cores and slow training
// down. Empty if there are enough cores.
std::string WarnOfThreads(int64_t threads);

// Binds the calling thread, and the threads that it starts later, to `count` of the cores that it may run on:
// the cores with the ordinal numbers `first`, `first` + 1, ..., modulo their number. Does nothing if the
// thread may run on at most `count` cores.
void StayOnCores(int first, int count);

// The tightest CPU quota, in cores, of this process's control group and its ancestors (version 1 or 2);
// nullopt if unlimited. `root` is prepended to /proc and /sys: "" in production, a directory in tests.
std::optional<double> CpuQuota(const std::string& root);

}  // namespace cairn
