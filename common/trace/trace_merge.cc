#include "common/trace/trace_merge.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "common/trace/trace_session.h"

namespace cairn {
namespace {

// The sort key of a task: ps/0, ps/1, chief/0, worker/0 life 1, worker/0, ...
std::tuple<bool, std::string, int64_t> OrderOf(const std::string& task) {
  const size_t slash = task.find('/');
  int64_t index = 0;
  if (slash != std::string::npos)
    static_cast<void>(absl::SimpleAtoi(task.substr(slash + 1, task.find(' ', slash) - slash - 1), &index));
  return {!absl::StartsWith(task, "ps/"), task.substr(0, slash), index};
}

// Wide enough for sums of arbitrary numbers read from files.
using Nanos = absl::int128;

// How far one clock is ahead of another, and the uncertainty, both in nanoseconds.
struct Tie {
  Nanos ahead, doubt;
};

// 31 years: on a longer timeline, no slice would be visible.
constexpr int64_t kFarthest = 1'000'000'000'000'000'000;

// The measured or known relation of the two tasks' clocks: how far the clock of `to` is ahead of the clock of
// `from`.
std::optional<Tie> TieOf(const TaskTrace& from, const TaskTrace& to) {
  const TaskTrace::Clock &a = from.clock, &b = to.clock;
  if (a.boot == b.boot) {
    return Tie{(Nanos(b.unix_nanos) - b.steady_nanos) - (Nanos(a.unix_nanos) - a.steady_nanos), 0};
  }
  std::optional<Tie> tie;
  if (const auto asked = a.others.find(to.task); asked != a.others.end()) {
    tie = Tie{asked->second.ahead_nanos, asked->second.round_trip_nanos};
  }
  if (const auto asked = b.others.find(from.task); asked != b.others.end()) {
    const Tie other = {-Nanos(asked->second.ahead_nanos), asked->second.round_trip_nanos};
    if (!tie.has_value() || other.doubt < tie->doubt) tie = other;
  }
  return tie;
}

Nanos EndOf(const TaskTrace& trace) {
  int64_t last = 0;
  for (const TaskTrace::Slice& slice : trace.slices) last = std::max(last, slice.begin + slice.duration);
  return Nanos(trace.clock.unix_nanos) + last;
}

// Sorts the traces and renames all but the last life of each task.
absl::Status DistinguishLives(std::vector<TaskTrace>& traces) {
  std::stable_sort(traces.begin(), traces.end(), [](const TaskTrace& a, const TaskTrace& b) {
    return std::tuple(OrderOf(a.task), a.clock.unix_nanos) < std::tuple(OrderOf(b.task), b.clock.unix_nanos);
  });
  int life = 0;
  for (size_t i = 0; i + 1 < traces.size(); ++i) {
    TaskTrace &trace = traces[i], &next = traces[i + 1];
    if (trace.task != next.task) {
      life = 0;
      continue;
    }
    if (EndOf(trace) > next.clock.unix_nanos)
      return absl::InvalidArgumentError(absl::StrCat("two timelines of ", trace.task, " overlap in time"));
    absl::StrAppend(&trace.task, " life ", ++life);
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int64_t> AlignClocks(const std::vector<TaskTrace>& traces) {
  const Nanos untied = absl::Int128Max();
  std::vector<Nanos> shifts(traces.size(), 0), doubts(traces.size(), untied);
  if (traces.empty()) return {};
  size_t first = 0;
  for (size_t i = 1; i < traces.size(); ++i) {
    if (OrderOf(traces[i].task) < OrderOf(traces[first].task)) first = i;
  }
  doubts[first] = 0;
  std::set<size_t> left;  // Dijkstra's algorithm: the tasks that are not settled yet
  for (size_t i = 0; i < traces.size(); ++i) left.insert(i);
  while (!left.empty()) {
    const size_t next = *std::min_element(left.begin(), left.end(),
                                          [&](size_t a, size_t b) { return doubts[a] < doubts[b]; });
    left.erase(next);
    if (doubts[next] == untied) break;
    for (const size_t other : left) {
      const std::optional<Tie> tie = TieOf(traces[next], traces[other]);
      if (!tie.has_value() || doubts[next] + tie->doubt >= doubts[other]) continue;
      doubts[other] = doubts[next] + tie->doubt;
      shifts[other] = shifts[next] - tie->ahead;
    }
  }
  std::vector<int64_t> clamped;
  for (const Nanos shift : shifts) {
    clamped.push_back(
        static_cast<int64_t>(std::clamp<Nanos>(shift, -4 * Nanos(kFarthest), 4 * Nanos(kFarthest))));
  }
  return clamped;
}

absl::StatusOr<std::string> MergeTraces(std::vector<TaskTrace> traces) {
  CAIRN_RETURN_IF_ERROR(DistinguishLives(traces));
  const std::vector<int64_t> shifts = AlignClocks(traces);
  std::vector<Nanos> begins;
  for (size_t i = 0; i < traces.size(); ++i) begins.push_back(Nanos(traces[i].clock.unix_nanos) + shifts[i]);
  const Nanos origin = begins.empty() ? 0 : *std::min_element(begins.begin(), begins.end());
  for (size_t i = 0; i < traces.size(); ++i) {
    if (begins[i] - origin <= kFarthest) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the timeline of ", traces[i].task, " is decades later than another: check the clocks"));
  }

  std::map<std::string, int> ends;  // [flow] bits: 1 if its begin is present, 2 if its end is
  for (const TaskTrace& trace : traces) {
    for (const TaskTrace::Flow& flow : trace.flows) ends[flow.id] |= flow.out ? 1 : 2;
  }
  for (size_t i = 0; i < traces.size(); ++i) {
    TaskTrace& trace = traces[i];
    const auto later = static_cast<int64_t>(begins[i] - origin);
    for (TaskTrace::Slice& slice : trace.slices) slice.begin += later;
    for (TaskTrace::Flow& flow : trace.flows) flow.at += later;
    trace.flows.erase(std::remove_if(trace.flows.begin(), trace.flows.end(),
                                     [&](const TaskTrace::Flow& flow) { return ends[flow.id] != 3; }),
                      trace.flows.end());
  }
  return ToJson(traces, static_cast<int64_t>(origin), shifts);
}

absl::Status MergeTraceFiles(const std::string& out, const std::vector<std::string>& in) {
  std::vector<std::string> files;
  for (const std::string& path : in) {
    const std::vector<std::string> lives = EarlierLives(path);
    for (const std::string& life : lives) {
      if (std::find(in.begin(), in.end(), life) == in.end()) files.push_back(life);
    }
    if (lives.empty() || FileExists(path)) files.push_back(path);  // the last life may have left nothing
  }
  std::vector<TaskTrace> traces;
  std::set<std::string> read;
  for (const std::string& path : files) {
    if (!read.insert(path).second) return absl::InvalidArgumentError(absl::StrCat(path, ": given twice"));
    CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    CAIRN_ASSIGN_OR_RETURN(TaskTrace trace, ParseTrace(text, path));
    traces.push_back(std::move(trace));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string merged, MergeTraces(std::move(traces)));
  return WriteFileAtomically(out, merged);
}

}  // namespace cairn
