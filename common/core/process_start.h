// What every program does first in main, before it reads flags or starts threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Makes errors of what would otherwise end the process without a word, or change what it computes:
//  - SIGXFSZ is ignored: a write beyond the file-size limit (ulimit -f) fails instead, and its error names
//    the file.
//  - An exception of a library that gets no thread or no memory, and that nothing catches, ends the program
//  as
//    EndProcess() does.
//  - Environment variables that libraries read, and that would change results or stop a job unnoticed, are
//    removed (the table in process_start.cc). Some are read before main: then the program starts itself again
//    without them.
// `argv`: main's.
void PrepareProcess(char** argv);

// What is to be logged of that: a line for each variable that was removed, also before the program started
// itself again. Once.
std::vector<std::string> TakeRemarks();

// What a program cannot do without.
struct ProcessNeeds {
  int64_t files = 0;  // that may be open
  int threads = 0;    // at the same time, beside those that it has
};
// When the log has been started: logs TakeRemarks(), raises the limit of open files and logs that.
// RESOURCE_EXHAUSTED naming the limit when less is left than `needs`; a warning where it is less than
// `job_files`, which the job needs by the size of its cluster.
absl::Status EnterLimits(const ProcessNeeds& needs, int64_t job_files);

// Ends the process with exit code 1 (ExitCode::kFailure) and one line on stderr, "cairn-ps: `why`", without
// running destructors: other threads still use what they would destroy.
[[noreturn]] void EndProcess(absl::string_view why);

}  // namespace cairn
