// The limits that the system sets to this process (ulimit, control groups): open files and threads.
//
// Each program looks at them when it starts, so that one that is too low is named then, and not by what fails
// later. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace cairn {

// The limit of open files (ulimit -n): the highest descriptor may be one less.
int64_t DescriptorLimit();

// The highest that this process may raise it to (ulimit -Hn).
int64_t HighestDescriptorLimit();

// Raises the limit of open files to the highest that this process may have. Returns what is to be logged,
// "limit of open files raised from 1024 to 524288 (ulimit -n)"; empty: it was the highest already.
std::string RaiseDescriptorLimit();

// RESOURCE_EXHAUSTED naming the limit and what raises it when fewer than `files` may be open, or when this
// process cannot have `threads` more threads at this moment. Starts that many and ends them again.
absl::Status CheckLimits(int64_t files, int threads);

// Why a thread was refused, in a person's words: the limits that may be at fault, with their values.
std::string ThreadLimits();

}  // namespace cairn
