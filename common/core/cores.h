// How many cores this process may keep busy.
#pragma once

#include <optional>
#include <string>

namespace cairn {

// The cores that the scheduler lets us run on (taskset, cpuset), or fewer where a control group's quota
// allows less (docker run --cpus, a Kubernetes limit). At least 1.
int UsableCores();

// The tightest CPU quota, in cores, of our control group and those above it, version 1 or 2; none when
// unlimited. `root` stands before /proc and /sys: "" in earnest, a directory in tests.
std::optional<double> CpuQuota(const std::string& root);

}  // namespace cairn
