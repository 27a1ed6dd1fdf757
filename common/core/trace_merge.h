// Several tasks' timelines as one, on one clock. Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/core/trace_file.h"

namespace cairn {

// By how much each task's unix_nanos are to be moved so that all agree: [task] nanoseconds, 0 for the first
// server (or the first task, where there is none). Tasks of one machine share its steady clock. Machines are
// put together by what tasks learnt of each other's clocks, along the quickest answers. Who is tied to nobody
// keeps its own time.
std::vector<int64_t> AlignClocks(const std::vector<TaskTrace>& traces);

// Servers first, then in the order of names. Of a task that was started again there are several, one after
// another: the earlier ones become "worker/0 life 1", "worker/0 life 2". Arrows of which an end is missing
// are left out: of a push that was lost, or beyond the steps that were recorded. INVALID_ARGUMENT naming a
// task that is there twice at a time, or whose times are decades from the others'.
absl::StatusOr<std::string> MergeTraces(std::vector<TaskTrace> traces);

// Reads, merges and writes files, with those of each task's earlier lives beside it (trace_session.h); `out`
// is written atomically. INVALID_ARGUMENT naming the file and the line where a fault is; what ReadFile() and
// WriteFileAtomically() say.
absl::Status MergeTraceFiles(const std::string& out, const std::vector<std::string>& in);

}  // namespace cairn
