// The limits of the system on this process (ulimit, control groups): open files and threads.
//
// Each program checks them when it starts, so that its message names a limit that is too low, before some
// later operation fails. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace cairn {

// The limit of open files (ulimit -n): the highest possible descriptor is one less.
int64_t DescriptorLimit();

// The highest limit of open files that this process may set (ulimit -Hn).
int64_t HighestDescriptorLimit();

// Raises the limit of open files to the highest that this process may set. Returns the line to log, "limit of
// open files raised from 1024 to 524288 (ulimit -n)"; empty if the limit was at its highest already.
std::string RaiseDescriptorLimit();

// The limit of this process's address space in bytes (ulimit -v); none if it is unlimited.
std::optional<int64_t> AddressSpaceLimit();

// RESOURCE_EXHAUSTED naming the limit, and the value that it needs, if it leaves less address space than the
// stacks of `threads` more threads and `bytes` for everything else.
absl::Status CheckAddressSpace(int threads, int64_t bytes);

// RESOURCE_EXHAUSTED naming the limit, and how to raise it, if fewer than `files` may be open, or if this
// process cannot start `threads` more threads now. Tries it: starts that many threads and joins them.
absl::Status CheckLimits(int64_t files, int threads);

// Possible reasons why a thread was refused, as text: the limits that may be at fault, with their values.
std::string ThreadLimits();

}  // namespace cairn
