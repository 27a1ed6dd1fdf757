// Standard input, output and error as every program needs them. Called by main, on its thread.
#pragma once

#include "absl/status/status.h"

namespace cairn {

// At the start of main: a standard stream that the caller has closed is occupied, so that no file that is
// opened later takes its number and receives what is printed. Printing to such a stream fails.
void OccupyStandardStreams();

// Of a program that outlives the readers of its output: a write to a pipe that nobody reads fails with EPIPE
// instead of ending the process. Processes that it starts inherit this.
void IgnoreBrokenPipes();

// Flushes all that was printed to standard output. UNKNOWN, with the system's reason where it is known, when
// any of it could not be written.
absl::Status FlushStandardOutput();

}  // namespace cairn
