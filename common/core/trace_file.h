// Timelines as files in Chrome's trace format (JSON), which Perfetto and chrome://tracing show: one process
// per task, one thread per lane. Times are microseconds with three decimals, so that nothing is rounded.
//
// A task's own file also tells of its clock (`otherData`), by which trace_merge.h puts several on one.
// Values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/trace.h"

namespace cairn {

// One task's. In each lane slices lie beside or within each other, and never overlap otherwise.
struct TaskTrace {
  struct Lane {
    std::string name;
    int place = 0;  // among the task's, from the top
  };
  struct Slice {
    size_t lane = 0;  // of `lanes`
    std::string name;
    int64_t begin = 0, duration = 0;  // nanoseconds; from `origin` on
    int64_t step = 0, bytes = 0;      // 0: not told
  };
  struct Flow {
    size_t lane = 0;
    bool out = false;  // an arrow begins here; else it ends
    int64_t at = 0;    // nanoseconds, within a slice of the lane
    std::string id;    // the same at both ends
  };
  // What the task's clock is to others'.
  struct Clock {
    std::string boot;                             // tasks with the same share the steady clock
    int64_t steady_nanos = 0, unix_nanos = 0;     // of both clocks, at the origin of the times
    std::map<std::string, ClockOffset> others{};  // [task]
  };

  std::string task;  // "worker/0"
  Clock clock;
  std::vector<Lane> lanes;
  std::vector<Slice> slices;  // by lane and begin, the outer before the inner
  std::vector<Flow> flows;
  int64_t lost = 0;    // events that were not kept
  bool ended = false;  // the task came to its end; else it wrote this on its way
};

// What was recorded, in lanes: work of one kind that overlaps takes a second one, "apply (2)".
TaskTrace LayOut(const TraceRecorder& recorder);

// One task's file.
std::string ToJson(const TaskTrace& trace);
// Of several tasks with their times on one clock already, from one origin; `unix_nanos` of it. `shifts`
// [task] [nanoseconds]: told in `otherData`, by how much each was moved.
std::string ToJson(const std::vector<TaskTrace>& tasks, int64_t unix_nanos,
                   const std::vector<int64_t>& shifts);

// Whether `text` is what ToJson(TaskTrace) wrote of `task` before it ended. Looks at the end of the file
// alone.
bool IsUnfinished(absl::string_view text, absl::string_view task);

// What ToJson(TaskTrace) wrote. INVALID_ARGUMENT naming `source` ("a.json"), the line and the fault.
absl::StatusOr<TaskTrace> ParseTrace(absl::string_view text, const std::string& source);
// Likewise also what was merged, whose times are on one clock and whose clocks are not told.
absl::StatusOr<std::vector<TaskTrace>> ParseTraces(absl::string_view text, const std::string& source);

}  // namespace cairn
