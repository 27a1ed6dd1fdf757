// Merges the timelines of several tasks into one, on one clock. Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/trace/trace_file.h"

namespace cairn {

// Returns, for each task, the nanoseconds to add to its unix_nanos so that all clocks agree: 0 for the first
// server (or the first task if there is no server). Tasks on one machine share its steady clock. The clocks
// of different machines are aligned by the offsets that tasks measured, preferring the shortest round trips.
// A task without a measured relation to the others is not moved.
std::vector<int64_t> AlignClocks(const std::vector<TaskTrace>& traces);

// Merges timelines into one file: servers first, then the others by name. A restarted task has several
// timelines; the earlier ones become "worker/0 life 1", "worker/0 life 2". Arrows with a missing end (of a
// lost push, or outside the recorded steps) are left out. INVALID_ARGUMENT naming a task with two timelines
// that overlap in time, or whose times are decades from those of the others.
absl::StatusOr<std::string> MergeTraces(std::vector<TaskTrace> traces);

// Merges the files `in`, and the files of earlier lives next to them (trace_session.h), into `out`, which is
// written atomically. INVALID_ARGUMENT naming the file and the line of a fault; also the errors of ReadFile()
// and WriteFileAtomically().
absl::Status MergeTraceFiles(const std::string& out, const std::vector<std::string>& in);

}  // namespace cairn
