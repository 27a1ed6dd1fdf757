#include "common/trace/trace_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/json.h"
#include "common/core/status.h"

namespace cairn {
namespace {

using nlohmann::json;

// The key of `otherData` that marks a file as Cairn's, and the version of the format.
constexpr char kForm[] = "cairn_trace";
constexpr int kTaskForm = 1;
// 31 years: the sum of two such times still fits into an int64_t of nanoseconds.
constexpr double kLongestMicros = 1e15;
// The tolerance for rounding, in nanoseconds: a slice may end this much later than the enclosing slice. A
// double holds microseconds with a precision of 1 ns up to 11 days.
constexpr int64_t kRounding = 1000;
// The largest clock value: the year 2096.
constexpr double kLargestNanos = 4e18;

std::string Quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string Micros(int64_t nanos) {
  return absl::StrFormat("%d.%03d", nanos / 1000, nanos % 1000);
}

// "/job:worker/task:0" -> "worker/0"; any other text is returned unchanged.
std::string TaskOf(const std::string& process) {
  const absl::string_view job = "/job:", task = "/task:";
  const size_t between = process.find(task.data(), job.size());
  if (process.compare(0, job.size(), job.data()) != 0 || between == std::string::npos) return process;
  return absl::StrCat(process.substr(job.size(), between - job.size()), "/",
                      process.substr(between + task.size()));
}

// "worker/0" -> "/job:worker/task:0"
std::string ProcessName(const std::string& task) {
  const size_t slash = task.find('/');
  if (slash == std::string::npos) return task;
  return absl::StrCat("/job:", task.substr(0, slash), "/task:", task.substr(slash + 1));
}

class Writer {
 public:
  Writer() : text_("{\"displayTimeUnit\":\"ms\",\n\"traceEvents\":[") {}

  void Add(const TaskTrace& trace, int pid) {
    Metadata(pid, 0, "process_name", absl::StrCat("\"name\":", Quoted(ProcessName(trace.task))));
    Metadata(pid, 0, "process_sort_index", absl::StrCat("\"sort_index\":", pid));
    for (size_t lane = 0; lane < trace.lanes.size(); ++lane) {
      const int tid = static_cast<int>(lane) + 1;
      Metadata(pid, tid, "thread_name", absl::StrCat("\"name\":", Quoted(trace.lanes[lane].name)));
      Metadata(pid, tid, "thread_sort_index", absl::StrCat("\"sort_index\":", trace.lanes[lane].place));
    }
    for (const TaskTrace::Slice& slice : trace.slices) {
      Begin(pid, slice.lane, "X", slice.name);
      absl::StrAppend(&text_, ",\"ts\":", Micros(slice.begin), ",\"dur\":", Micros(slice.duration));
      if (slice.step != 0 || slice.bytes != 0) {
        absl::StrAppend(&text_, ",\"args\":{");
        if (slice.step != 0) absl::StrAppend(&text_, "\"step\":", slice.step);
        if (slice.bytes != 0) absl::StrAppend(&text_, slice.step != 0 ? "," : "", "\"bytes\":", slice.bytes);
        text_ += '}';
      }
      text_ += '}';
    }
    for (const TaskTrace::Flow& flow : trace.flows) {
      Begin(pid, flow.lane, flow.out ? "s" : "f", "push");
      absl::StrAppend(&text_, ",\"ts\":", Micros(flow.at), ",\"id\":", Quoted(flow.id),
                      flow.out ? "}" : ",\"bp\":\"e\"}");
    }
  }

  std::string End(const std::string& other) && {
    absl::StrAppend(&text_, "\n],\n\"otherData\":", other, "}\n");
    return std::move(text_);
  }

 private:
  void Next() {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
  }
  void Metadata(int pid, int tid, const char* name, const std::string& args) {
    Next();
    absl::StrAppend(&text_, "{\"ph\":\"M\",\"name\":\"", name, "\",\"pid\":", pid, ",\"tid\":", tid,
                    ",\"args\":{", args, "}}");
  }
  void Begin(int pid, size_t lane, const char* phase, const std::string& name) {
    Next();
    absl::StrAppend(&text_, "{\"ph\":\"", phase, "\",\"name\":", Quoted(name),
                    ",\"cat\":\"cairn\",\"pid\":", pid, ",\"tid\":", lane + 1);
  }

  std::string text_;
  bool first_ = true;
};

// Parses a file, and names the event or the key of `otherData` that is at fault.
class Reader {
 public:
  Reader(absl::string_view text, const std::string& source) : text_(text), source_(source) {}

  // `merged`: whether the file may contain several tasks, without their clocks.
  absl::StatusOr<std::vector<TaskTrace>> Read(bool merged) {
    CAIRN_ASSIGN_OR_RETURN(const json document, ParseJson(text_, source_));
    if (!document.is_object() || !document.contains("traceEvents") || !document["traceEvents"].is_array()) {
      return Fault("no object with an array \"traceEvents\"");
    }
    CAIRN_RETURN_IF_ERROR(ReadOther(document.contains("otherData") ? document["otherData"] : json(), merged));
    size_t index = 0;
    for (const json& event : document["traceEvents"]) {
      if (const std::string fault = ReadEvent(event); !fault.empty()) return EventFault(index, fault);
      ++index;
    }
    for (TaskTrace& trace : traces_) CAIRN_RETURN_IF_ERROR(Finish(trace));
    return std::move(traces_);
  }

 private:
  absl::Status Fault(const std::string& fault) const {
    return absl::InvalidArgumentError(absl::StrCat(source_, ": ", fault));
  }
  absl::Status EventFault(size_t index, const std::string& fault) const {
    const auto lines = LinesOfElements(text_);
    return absl::InvalidArgumentError(absl::StrCat(
        source_, ":", lines.at(absl::StrCat("/traceEvents/", index)), ": event ", index, ": ", fault));
  }

  absl::Status ReadOther(const json& other, bool merged) {
    if (!other.is_object() || !other.contains(kForm)) {
      return Fault("not the timeline of a Cairn task: otherData has no cairn_trace");
    }
    if (other[kForm] != kTaskForm) return Fault(absl::StrCat("otherData.", kForm, " is not ", kTaskForm));
    if (!other.contains("task")) {
      return merged ? absl::OkStatus() : Fault("contains several tasks: it is already merged");
    }
    alone_ = true;
    TaskTrace& trace = traces_.emplace_back();
    const auto text = [&](const char* key, std::string& value) {
      const bool good =
          other.contains(key) && other[key].is_string() && !other[key].get<std::string>().empty();
      if (good) value = other[key].get<std::string>();
      return good ? absl::OkStatus() : Fault(absl::StrCat("otherData.", key, " is not a name"));
    };
    const auto number = [&](const json& object, const std::string& where, const char* key, int64_t& value) {
      const bool good = object.is_object() && object.contains(key) && object[key].is_number_integer() &&
                        std::abs(object[key].get<double>()) <= kLargestNanos;
      if (good) value = object[key].get<int64_t>();
      return good ? absl::OkStatus() : Fault(absl::StrCat(where, ".", key, " is not a whole number"));
    };
    CAIRN_RETURN_IF_ERROR(text("task", trace.task));
    CAIRN_RETURN_IF_ERROR(text("boot", trace.clock.boot));
    CAIRN_RETURN_IF_ERROR(number(other, "otherData", "steady_nanos", trace.clock.steady_nanos));
    CAIRN_RETURN_IF_ERROR(number(other, "otherData", "unix_nanos", trace.clock.unix_nanos));
    CAIRN_RETURN_IF_ERROR(number(other, "otherData", "lost_events", trace.lost));
    trace.ended = other.contains("ended") && other["ended"] == true;
    if (!other.contains("clocks")) return absl::OkStatus();
    if (!other["clocks"].is_object()) return Fault("otherData.clocks is not an object");
    for (const auto& [task, clock] : other["clocks"].items()) {
      const std::string where = absl::StrCat("otherData.clocks.", task);
      ClockOffset& offset = trace.clock.others[task];
      CAIRN_RETURN_IF_ERROR(number(clock, where, "ahead_nanos", offset.ahead_nanos));
      CAIRN_RETURN_IF_ERROR(number(clock, where, "round_trip_nanos", offset.round_trip_nanos));
      if (offset.round_trip_nanos < 0) return Fault(absl::StrCat(where, ".round_trip_nanos is negative"));
    }
    return absl::OkStatus();
  }

  // The trace of process `pid`. The file of a single task has only one trace, whatever the pid.
  TaskTrace& TraceOf(int64_t pid) {
    if (alone_) return traces_[0];
    const auto [found, added] = trace_of_.emplace(pid, traces_.size());
    if (added) traces_.emplace_back().task = absl::StrCat("process ", pid);
    return traces_[found->second];
  }

  // Returns the fault; empty if there is none.
  std::string ReadEvent(const json& event) {
    if (!event.is_object()) return "not an object";
    const auto text = [&](const char* key) -> std::optional<std::string> {
      if (!event.contains(key) || !event[key].is_string()) return std::nullopt;
      return event[key].get<std::string>();
    };
    const auto phase = text("ph"), name = text("name");
    if (!phase.has_value()) return "ph is not a string";
    if (!name.has_value()) return "name is not a string";
    for (const char* key : {"pid", "tid"}) {
      if (!event.contains(key) || !event[key].is_number_integer())
        return absl::StrCat(key, " is not a whole number");
    }
    const auto pid = event["pid"].get<int64_t>(), tid = event["tid"].get<int64_t>();
    if (*phase == "M") return ReadMetadata(event, *name, pid, tid);

    std::string fault;
    const auto micros = [&](const char* key) -> int64_t {
      const bool good = event.contains(key) && event[key].is_number() && event[key].get<double>() >= 0 &&
                        event[key].get<double>() <= kLongestMicros;
      if (!good) fault = absl::StrCat(key, " is not a time in microseconds of at least 0");
      return good ? std::llround(event[key].get<double>() * 1000) : 0;
    };
    const int64_t at = micros("ts");
    const size_t lane = LaneOf(pid, tid);
    TaskTrace& trace = TraceOf(pid);
    if (*phase == "X") {
      TaskTrace::Slice slice = {.lane = lane, .name = *name, .begin = at, .duration = micros("dur")};
      for (const auto& [key, value] : {std::pair("step", &slice.step), std::pair("bytes", &slice.bytes)}) {
        if (!event.contains("args") || !event["args"].is_object() || !event["args"].contains(key)) continue;
        if (!event["args"][key].is_number_integer())
          return absl::StrCat("args.", key, " is not a whole number");
        *value = event["args"][key].get<int64_t>();
      }
      trace.slices.push_back(std::move(slice));
    } else if (*phase == "s" || *phase == "f") {
      const auto id = text("id");
      if (!id.has_value()) return "id is not a string";
      trace.flows.push_back({.lane = lane, .out = *phase == "s", .at = at, .id = *id});
    } else {
      return absl::StrCat("ph '", *phase, "' is not one of X, s, f and M");
    }
    return fault;
  }

  std::string ReadMetadata(const json& event, const std::string& name, int64_t pid, int64_t tid) {
    const bool has_args = event.contains("args") && event["args"].is_object();
    if (name == "thread_name" || name == "process_name") {
      if (!has_args || !event["args"].contains("name") || !event["args"]["name"].is_string()) {
        return "args.name is not a string";
      }
      std::string told = event["args"]["name"].get<std::string>();
      if (name == "thread_name") {
        TraceOf(pid).lanes[LaneOf(pid, tid)].name = std::move(told);
      } else if (!alone_) {
        TraceOf(pid).task = TaskOf(told);
      }
    } else if (name == "thread_sort_index") {
      if (!has_args || !event["args"].contains("sort_index") ||
          !event["args"]["sort_index"].is_number_integer()) {
        return "args.sort_index is not a whole number";
      }
      TraceOf(pid).lanes[LaneOf(pid, tid)].place = event["args"]["sort_index"].get<int>();
    }
    return "";
  }

  size_t LaneOf(int64_t pid, int64_t tid) {
    std::vector<TaskTrace::Lane>& lanes = TraceOf(pid).lanes;
    const auto [found, added] = lane_of_.emplace(std::pair(alone_ ? 0 : pid, tid), lanes.size());
    if (added) lanes.push_back({.name = absl::StrCat("lane ", tid)});
    return found->second;
  }

  // Sorts the slices. Refuses slices that overlap without being nested: Cairn never writes them, and no
  // viewer displays them correctly.
  absl::Status Finish(TaskTrace& trace) const {
    std::stable_sort(trace.slices.begin(), trace.slices.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.lane, a.begin, -a.duration) < std::tuple(b.lane, b.begin, -b.duration);
    });
    std::vector<int64_t> ends;  // the ends of the open slices, the innermost last
    size_t lane = 0;
    for (TaskTrace::Slice& slice : trace.slices) {
      if (std::exchange(lane, slice.lane) != slice.lane) ends.clear();
      while (!ends.empty() && ends.back() <= slice.begin) ends.pop_back();
      if (!ends.empty() && slice.begin + slice.duration - ends.back() <= kRounding) {
        slice.duration = std::min(slice.duration, ends.back() - slice.begin);
      }
      if (!ends.empty() && ends.back() < slice.begin + slice.duration) {
        return Fault(absl::StrCat("lane '", trace.lanes[slice.lane].name, "': '", slice.name, "' at ",
                                  Micros(slice.begin),
                                  " overlaps the previous slice without being nested in it"));
      }
      ends.push_back(slice.begin + slice.duration);
    }
    return absl::OkStatus();
  }

  const absl::string_view text_;
  const std::string& source_;
  bool alone_ = false;
  std::vector<TaskTrace> traces_;
  std::map<int64_t, size_t> trace_of_;                     // [pid]
  std::map<std::pair<int64_t, int64_t>, size_t> lane_of_;  // [pid, tid]
};

}  // namespace

std::string ToJson(const TaskTrace& trace) {
  Writer writer;
  writer.Add(trace, 1);
  json clocks = json::object();
  for (const auto& [task, offset] : trace.clock.others) {
    clocks[task] = {{"ahead_nanos", offset.ahead_nanos}, {"round_trip_nanos", offset.round_trip_nanos}};
  }
  const json other = {{kForm, kTaskForm},
                      {"task", trace.task},
                      {"boot", trace.clock.boot},
                      {"steady_nanos", trace.clock.steady_nanos},
                      {"unix_nanos", trace.clock.unix_nanos},
                      {"clocks", std::move(clocks)},
                      {"lost_events", trace.lost},
                      {"ended", trace.ended}};
  return std::move(writer).End(other.dump());
}

bool IsUnfinished(absl::string_view text, absl::string_view task) {
  constexpr absl::string_view kOther = "\n\"otherData\":";
  const size_t begin = text.rfind(kOther);
  if (begin == absl::string_view::npos || text.size() < begin + kOther.size() + 2) return false;
  text = text.substr(begin + kOther.size());
  const json other = json::parse(text.substr(0, text.rfind('}')), nullptr, /*allow_exceptions=*/false);
  return other.is_object() && other.contains(kForm) && other.contains("task") &&
         other["task"] == std::string(task) && other.contains("ended") && other["ended"] == false;
}

std::string ToJson(const std::vector<TaskTrace>& tasks, int64_t unix_nanos,
                   const std::vector<int64_t>& shifts) {
  Writer writer;
  json told = json::object();
  for (size_t i = 0; i < tasks.size(); ++i) {
    writer.Add(tasks[i], static_cast<int>(i) + 1);
    told[tasks[i].task] = {{"clock_moved_nanos", shifts[i]}, {"lost_events", tasks[i].lost}};
  }
  const json other = {{kForm, kTaskForm}, {"tasks", std::move(told)}, {"unix_nanos", unix_nanos}};
  return std::move(writer).End(other.dump());
}

absl::StatusOr<TaskTrace> ParseTrace(absl::string_view text, const std::string& source) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<TaskTrace> traces, Reader(text, source).Read(/*merged=*/false));
  return std::move(traces[0]);
}

absl::StatusOr<std::vector<TaskTrace>> ParseTraces(absl::string_view text, const std::string& source) {
  return Reader(text, source).Read(/*merged=*/true);
}

}  // namespace cairn
