// Timelines as files in Chrome's trace format (JSON), which Perfetto and chrome://tracing display: one
// process per task, one thread per lane. Times are microseconds with three decimals, so that nothing is
// rounded.
//
// The file of a single task also describes its clock (`otherData`), which trace_merge.h uses to put several
// tasks on one clock. Value types; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/trace/trace.h"

namespace cairn {

// The timeline of one task. Two slices of one lane are either disjoint or nested.
struct TaskTrace {
  struct Lane {
    std::string name;
    int place = 0;  // position among the task's lanes, from the top
  };
  struct Slice {
    size_t lane = 0;  // index into `lanes`
    std::string name;
    int64_t begin = 0, duration = 0;  // nanoseconds; `begin` is relative to the origin of the times
    int64_t step = 0, bytes = 0;      // 0: unknown
  };
  struct Flow {
    size_t lane = 0;
    bool out = false;  // whether the arrow begins here; otherwise it ends here
    int64_t at = 0;    // nanoseconds; lies within a slice of the lane
    std::string id;    // the same at both ends
  };
  // The relation of the task's clock to other clocks.
  struct Clock {
    std::string boot;                             // tasks with the same value share the steady clock
    int64_t steady_nanos = 0, unix_nanos = 0;     // both clocks at the origin of the times
    std::map<std::string, ClockOffset> others{};  // [task]
  };

  std::string task;  // "worker/0"
  Clock clock;
  std::vector<Lane> lanes;
  std::vector<Slice> slices;  // sorted by lane and begin, outer slices before inner ones
  std::vector<Flow> flows;
  int64_t lost = 0;    // events that were overwritten
  bool ended = false;  // whether the task had ended when the trace was written
};

// Arranges the recorded events in lanes. Overlapping work of one kind gets further lanes: "apply (2)".
TaskTrace LayOut(const TraceRecorder& recorder);

// The file of one task.
std::string ToJson(const TaskTrace& trace);
// The file of several tasks whose times are already on one clock and have one origin, `unix_nanos`. `shifts`
// [task]: the nanoseconds by which the task's times were moved; they are written to `otherData`.
std::string ToJson(const std::vector<TaskTrace>& tasks, int64_t unix_nanos,
                   const std::vector<int64_t>& shifts);

// Whether ToJson(TaskTrace) wrote `text` for `task` before that task ended. Reads only the end of the text.
bool IsUnfinished(absl::string_view text, absl::string_view task);

// Parses what ToJson(TaskTrace) wrote. INVALID_ARGUMENT naming `source` ("a.json"), the line and the fault.
absl::StatusOr<TaskTrace> ParseTrace(absl::string_view text, const std::string& source);
// As ParseTrace(), but accepts merged files too. Their times are on one clock; TaskTrace::clock is not set.
absl::StatusOr<std::vector<TaskTrace>> ParseTraces(absl::string_view text, const std::string& source);

}  // namespace cairn
