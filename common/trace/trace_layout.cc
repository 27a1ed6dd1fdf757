// Arranges recorded events in lanes in which no slices overlap unless they are nested.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/trace/trace_file.h"

namespace cairn {
namespace {

// One row of a lane: the ends of its open slices, the innermost last.
struct Row {
  size_t lane;
  std::vector<int64_t> ends{};

  bool Takes(int64_t begin, int64_t end) {
    while (!ends.empty() && ends.back() <= begin) ends.pop_back();
    return ends.empty() || end <= ends.back();
  }
};

std::string IdOf(const TraceFlow& flow) {
  return absl::StrCat("worker/", flow.worker, " life ", flow.incarnation, " push ", flow.number, " to ps/",
                      flow.server);
}

// Identifies a steady clock: the kernel's boot, and the time namespace, because containers may shift the
// clock.
std::string Boot() {
  std::string boot = ReadFile("/proc/sys/kernel/random/boot_id").value_or("unknown");
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  char space[64] = {};
  const ssize_t length = readlink("/proc/self/ns/time", space, sizeof(space) - 1);
  return length > 0 ? absl::StrCat(boot, " ", space) : boot;
}

using Rows = std::map<std::pair<TraceLane, int>, std::vector<Row>>;

// Sorts the events by lane and time; an event that contains others precedes them.
void SortEvents(std::vector<TraceEvent>& events) {
  const auto order = [](const TraceEvent& event) {
    return std::tuple(event.lane, event.index, event.begin, -event.end);
  };
  std::sort(events.begin(), events.end(),
            [&](const TraceEvent& a, const TraceEvent& b) { return order(a) < order(b); });
}

// Adds the slices to `trace`, in rows in which they do not overlap, and a lane for each row.
Rows AddSlices(const std::vector<TraceEvent>& events, TaskTrace& trace) {
  Rows rows;
  for (const TraceEvent& event : events) {
    if (event.kind != TraceEvent::Kind::kSlice) continue;
    auto& candidates = rows[{event.lane, event.index}];
    auto row = std::find_if(candidates.begin(), candidates.end(),
                            [&](Row& candidate) { return candidate.Takes(event.begin, event.end); });
    if (row == candidates.end()) {
      std::string name = NameOf(event.lane, event.index);
      if (!candidates.empty()) absl::StrAppend(&name, " (", candidates.size() + 1, ")");
      row = candidates.insert(candidates.end(), {.lane = trace.lanes.size()});
      trace.lanes.push_back({.name = std::move(name)});
    }
    row->ends.push_back(event.end);
    trace.slices.push_back({.lane = row->lane,
                            .name = event.name,
                            .begin = event.begin - trace.clock.steady_nanos,
                            .duration = event.end - event.begin,
                            .step = event.step,
                            .bytes = event.bytes});
  }
  int place = 0;
  for (const auto& [kind, of_kind] : rows) {
    for (const Row& row : of_kind) trace.lanes[row.lane].place = ++place;
  }
  std::stable_sort(trace.slices.begin(), trace.slices.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.lane, a.begin) < std::tuple(b.lane, b.begin);
  });
  return rows;
}

// Adds one end of an arrow to `trace`. It belongs to the slice that contains its time, in whichever of `rows`
// that is.
void AddFlow(const TraceEvent& event, const std::vector<Row>& rows, TaskTrace& trace) {
  const int64_t at = event.begin - trace.clock.steady_nanos;
  for (const Row& row : rows) {
    const auto after = std::upper_bound(trace.slices.begin(), trace.slices.end(), std::tuple(row.lane, at),
                                        [](const auto& key, const TaskTrace::Slice& slice) {
                                          return key < std::tuple(slice.lane, slice.begin);
                                        });
    if (after == trace.slices.begin()) continue;
    const TaskTrace::Slice& before = *std::prev(after);
    if (before.lane != row.lane || at >= before.begin + before.duration) continue;
    trace.flows.push_back({.lane = row.lane,
                           .out = event.kind == TraceEvent::Kind::kFlowOut,
                           .at = at,
                           .id = IdOf(event.flow)});
    return;
  }
}

}  // namespace

TaskTrace LayOut(const TraceRecorder& recorder) {
  TraceRecorder::Collected collected = recorder.Collect();
  TaskTrace trace;
  trace.task = recorder.task();
  trace.lost = collected.lost;
  trace.clock.boot = Boot();
  trace.clock.others = std::move(collected.clocks);

  std::vector<TraceEvent>& events = collected.events;
  // No slice may be empty: an arrow must lie within a slice.
  for (TraceEvent& event : events) {
    if (event.kind == TraceEvent::Kind::kSlice) event.end = std::max(event.end, event.begin + 1);
  }
  SortEvents(events);

  int64_t origin = TraceNanos(std::chrono::steady_clock::now());
  for (const TraceEvent& event : events) origin = std::min(origin, event.begin);
  trace.clock.steady_nanos = origin;
  trace.clock.unix_nanos = recorder.UnixNanos(TimePoint(std::chrono::nanoseconds(origin)));

  Rows rows = AddSlices(events, trace);
  for (const TraceEvent& event : events) {
    if (event.kind != TraceEvent::Kind::kSlice) AddFlow(event, rows[{event.lane, event.index}], trace);
  }
  return trace;
}

}  // namespace cairn
