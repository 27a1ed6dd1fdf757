// Prepares standard input, output and error for every program. main() calls these functions on its thread.
#pragma once

#include "absl/status/status.h"

namespace cairn {

// Must be called first in main(): occupies the descriptors of closed standard streams, so that no file opened
// later gets such a descriptor and receives the output. Printing to such a stream fails.
void OccupyStandardStreams();

// For a program that outlives the readers of its output: a write to a pipe without a reader fails with EPIPE
// instead of ending the process. Child processes inherit this setting.
void IgnoreBrokenPipes();

// Flushes standard output. UNKNOWN, with the system's reason if it is known, if any output could not be
// written.
absl::Status FlushStandardOutput();

}  // namespace cairn
