// The first steps of every main(), before it reads flags or starts threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Handles conditions that would otherwise end the process silently or change its results:
//  - SIGXFSZ is ignored: a write beyond the file-size limit (ulimit -f) fails instead, and its error names
//    the file.
//  - Under a limit of address space (ulimit -v), all threads allocate from one heap, because each further
//    heap reserves 64 MiB. Under such a limit, an abort, by which libraries respond to a lack of memory or
//    threads, ends the program as EndProcess() does.
//  - A library that gets no thread or no memory throws an exception. If nothing catches it, the program ends
//    as EndProcess() does, with exit code 1 and one line on stderr. Any other uncaught exception still aborts
//    the process.
//  - Environment variables that libraries read, and that would change results or stop a job unnoticed, are
//    removed (the table in process_start.cc). If a library has read one before main(), the program executes
//    itself again without it.
// `argv`: the argument of main().
void PrepareProcess(char** argv);

// The log lines for PrepareProcess(): one for each variable that was removed, before or after the program
// executed itself again. Only the first call returns them.
std::vector<std::string> TakeRemarks();

// The resources that a program cannot run without.
struct ProcessNeeds {
  int64_t files = 0;  // files that are open at the same time
  int threads = 0;    // threads that run at the same time, in addition to those that run already
  // Threads for the peers of the job, started as they connect.
  int peer_threads = 0;
};
// Must be called once logging works: logs TakeRemarks(), then raises the limit of open files and logs that.
// RESOURCE_EXHAUSTED naming the limit if it does not admit `needs`. Logs a warning if the limit of open files
// is below `job_files`, the number that the job needs at the size of its cluster.
absl::Status EnterLimits(const ProcessNeeds& needs, int64_t job_files);

// Ends the process with exit code 1 (ExitCode::kFailure) and one line on stderr, "cairn-ps: `why`", without
// running destructors: other threads still use what they would destroy.
[[noreturn]] void EndProcess(absl::string_view why);

}  // namespace cairn
