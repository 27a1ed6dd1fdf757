#include "common/trace/trace_summary.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cairn {
namespace {

constexpr double kNanosPerMilli = 1e6;

// The durations and the nesting depth of the slices of one name: "step", and "  input" within it.
using SummaryRow = std::pair<std::vector<int64_t>, int>;

}  // namespace

std::string SummaryOf(const std::vector<TaskTrace>& traces) {
  const std::string step_lane = NameOf(TraceLane::kStep, -1);
  std::set<int64_t> steps;
  double step_nanos = 0;
  int64_t step_slices = 0;
  for (const TaskTrace& trace : traces) {
    for (const TaskTrace::Slice& slice : trace.slices) {
      if (trace.lanes[slice.lane].name != step_lane || slice.name != step_lane) continue;
      steps.insert(slice.step);
      step_nanos += static_cast<double>(slice.duration);
      ++step_slices;
    }
  }
  const double num_steps = std::max<double>(1, static_cast<double>(steps.size()));
  const double step_length = step_slices == 0 ? 0 : step_nanos / static_cast<double>(step_slices);

  std::string text = absl::StrFormat("%-10s %-18s %-22s %7s %11s %11s %7s\n", "task", "lane", "work",
                                     "slices", "median", "per step", "step");
  for (const TaskTrace& trace : traces) {
    // The names of the slices of each lane, in the order of their first occurrence. The key of a lane is its
    // position from the top, followed by its index.
    std::map<std::pair<int, size_t>, std::vector<std::string>> names;
    std::map<std::pair<size_t, std::string>, SummaryRow> rows;  // [lane, name]
    std::vector<int64_t> ends;
    size_t lane = 0;
    for (const TaskTrace::Slice& slice : trace.slices) {  // sorted by lane and begin
      if (std::exchange(lane, slice.lane) != slice.lane) ends.clear();
      while (!ends.empty() && ends.back() <= slice.begin) ends.pop_back();
      auto& row = rows[{slice.lane, slice.name}];
      if (row.first.empty()) {
        row.second = static_cast<int>(ends.size());
        names[{trace.lanes[slice.lane].place, slice.lane}].push_back(slice.name);
      }
      row.first.push_back(slice.duration);
      ends.push_back(slice.begin + slice.duration);
    }
    std::string task = trace.task;
    for (const auto& [place, of_lane] : names) {
      std::string shown = trace.lanes[place.second].name;
      for (const std::string& name : of_lane) {
        auto& [durations, depth] = rows[{place.second, name}];
        std::nth_element(durations.begin(),
                         durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 2),
                         durations.end());
        double total = 0;
        for (const int64_t duration : durations) total += static_cast<double>(duration);
        const double per_step = total / num_steps;
        absl::StrAppendFormat(
            &text, "%-10s %-18s %-22s %7d %8.3f ms %8.3f ms %s\n", task, shown,
            absl::StrCat(std::string(static_cast<size_t>(2 * depth), ' '), name), durations.size(),
            static_cast<double>(durations[durations.size() / 2]) / kNanosPerMilli, per_step / kNanosPerMilli,
            step_length == 0 ? "      -" : absl::StrFormat("%5.1f %%", 100 * per_step / step_length));
        task.clear();
        shown.clear();
      }
    }
  }
  absl::StrAppendFormat(&text, "%d steps of %.3f ms\n", steps.size(), step_length / kNanosPerMilli);
  return text;
}

}  // namespace cairn
