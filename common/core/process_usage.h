// What the kernel says that this process takes of the machine.
#pragma once

#include <cstdint>

namespace cairn {

struct ProcessUsage {
  int64_t resident_bytes = 0;
  int64_t virtual_bytes = 0;
  double cpu_seconds = 0;         // of all threads, user and system
  double start_unix_seconds = 0;  // when it was started
  int64_t threads = 0;
  int64_t open_files = 0;
  int64_t most_open_files = 0;
};

// Zeros for what /proc does not tell.
ProcessUsage UsageOfThisProcess();

}  // namespace cairn
