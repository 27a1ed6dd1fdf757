// The system's limits for this process (ulimit, control groups): open files, threads, address space.
//
// Each program checks them when it starts, so that its message names a limit that is too low, before some
// later operation fails. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace cairn {

// The limit of open files (ulimit -n). The highest possible descriptor is one less than the limit.
int64_t DescriptorLimit();

// The highest limit of open files that this process may set (ulimit -Hn).
int64_t HighestDescriptorLimit();

// Raises the limit of open files to the highest that this process may set. Returns the line to log, "limit of
// open files raised from 1024 to 524288 (ulimit -n)"; empty if the limit was at its highest already.
std::string RaiseDescriptorLimit();

// The limit of this process's address space in bytes (ulimit -v); nullopt if it is unlimited.
std::optional<int64_t> AddressSpaceLimit();

// RESOURCE_EXHAUSTED, naming the limit and the value it should have, if the remaining address space does not
// suffice for the stacks of `threads` more threads and `bytes` of other memory.
absl::Status CheckAddressSpace(int threads, int64_t bytes);

// RESOURCE_EXHAUSTED, naming the limit and how to raise it, if fewer than `files` files may be open or if
// this process cannot start `threads` more threads now. Tests the threads by starting and joining them.
absl::Status CheckLimits(int64_t files, int threads);

// A text with the limits that may be the reason why no thread could be started, and their values.
std::string ThreadLimits();

}  // namespace cairn
