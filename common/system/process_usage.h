// The resources that this process uses, as reported by the kernel.
#pragma once

#include <cstdint>

namespace cairn {

struct ProcessUsage {
  int64_t resident_bytes = 0;
  int64_t virtual_bytes = 0;
  double cpu_seconds = 0;         // user and system time of all threads
  double start_unix_seconds = 0;  // when the process was started
  int64_t threads = 0;
  int64_t open_files = 0;
  int64_t most_open_files = 0;  // the limit of open files (ulimit -n)
};

// Values that cannot be read from /proc are 0.
ProcessUsage UsageOfThisProcess();

}  // namespace cairn
