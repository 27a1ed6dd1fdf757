#include "common/trace/trace_merge.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/core/files.h"
#include "common/core/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr int64_t kSecond = 1'000'000'000;

// A task with one slice of 10 ns at `begin`, on a machine whose steady clock was 0 when its system clock was
// `started`.
TaskTrace Task(const std::string& task, const std::string& boot, int64_t started, int64_t begin) {
  TaskTrace trace;
  trace.task = task;
  trace.clock = {.boot = boot, .steady_nanos = begin, .unix_nanos = started + begin};
  trace.lanes.push_back({.name = "apply", .place = 1});
  trace.slices.push_back({.lane = 0, .name = "apply", .begin = 0, .duration = 10});
  return trace;
}

TEST(AlignClocks, TasksOnOneMachineShareItsSteadyClock) {
  // The system clock was set back by a second between the starts of the two tasks.
  const auto shifts =
      AlignClocks({Task("ps/0", "a", 5 * kSecond, 100), Task("worker/0", "a", 4 * kSecond, 200)});
  EXPECT_THAT(shifts, ElementsAre(0, kSecond));
}

TEST(AlignClocks, MachinesAreAlignedByMeasuredOffsets) {
  TaskTrace worker = Task("worker/0", "b", 0, 0);
  worker.clock.others["ps/0"] = {.ahead_nanos = 3 * kSecond, .round_trip_nanos = 1000};
  EXPECT_THAT(AlignClocks({Task("ps/0", "a", 0, 0), worker}), ElementsAre(0, 3 * kSecond));
  EXPECT_THAT(AlignClocks({worker, Task("ps/0", "a", 0, 0)}), ElementsAre(3 * kSecond, 0));
}

TEST(AlignClocks, ThePathWithTheShortestRoundTripsIsUsed) {
  TaskTrace far = Task("worker/0", "b", 0, 0), near = Task("worker/1", "c", 0, 0);
  far.clock.others["ps/0"] = {.ahead_nanos = 50, .round_trip_nanos = 900};
  near.clock.others["ps/0"] = {.ahead_nanos = 7, .round_trip_nanos = 10};
  far.clock.others["ps/1"] = {.ahead_nanos = 40, .round_trip_nanos = 20};
  near.clock.others["ps/1"] = {.ahead_nanos = 2, .round_trip_nanos = 30};
  const auto shifts = AlignClocks({Task("ps/0", "a", 0, 0), Task("ps/1", "d", 0, 0), far, near});
  // ps/0 <- worker/1 (10) <- ps/1 (30) <- worker/0 (20): 60 in sum. The direct path has an uncertainty of
  // 900.
  EXPECT_THAT(shifts, ElementsAre(0, 7 - 2, 5 + 40, 7));
}

TEST(AlignClocks, ATaskWithoutMeasurementsIsNotMoved) {
  EXPECT_THAT(AlignClocks({Task("ps/0", "a", 7, 0), Task("worker/0", "b", 9, 0)}), ElementsAre(0, 0));
}

nlohmann::json Merged(std::vector<TaskTrace> traces) {
  const auto merged = MergeTraces(std::move(traces));
  EXPECT_TRUE(merged.ok()) << merged.status();
  const auto document = ParseJson(merged.value_or("{}"), "merged");
  EXPECT_TRUE(document.ok()) << document.status();
  return *document;
}

std::vector<std::string> Times(const nlohmann::json& document) {
  std::vector<std::string> times;
  for (const auto& event : document["traceEvents"]) {
    if (event["ph"] != "M") times.push_back(absl::StrCat(event["pid"].get<int>(), " ", event["ts"].dump()));
  }
  return times;
}

TEST(MergeTraces, ServersComeFirstAndTimesStartAtTheEarliest) {
  TaskTrace early = Task("worker/0", "b", 0, 500);  // at 1500 on the clock of ps/0
  early.clock.others["ps/0"] = {.ahead_nanos = 1000, .round_trip_nanos = 10};
  const auto document = Merged({Task("worker/10", "a", 0, 4000), early, Task("ps/0", "a", 0, 2500)});
  EXPECT_THAT(Times(document), ElementsAre("1 1.0", "2 0.0", "3 2.5"));
  EXPECT_EQ(document["otherData"]["unix_nanos"], 1500);
  EXPECT_EQ(document["otherData"]["tasks"]["worker/0"]["clock_moved_nanos"], 1000);
  EXPECT_EQ(document["otherData"]["tasks"]["worker/10"]["clock_moved_nanos"], 0);
}

TEST(MergeTraces, ArrowsWithoutAnEndAreLeftOut) {
  TaskTrace worker = Task("worker/0", "a", 0, 0), server = Task("ps/0", "a", 0, 0);
  worker.flows = {{.out = true, .at = 1, .id = "both"}, {.out = true, .at = 2, .id = "lost"}};
  server.flows = {{.at = 5, .id = "both"}, {.at = 6, .id = "from before"}};
  const auto document = Merged({worker, server});
  std::vector<std::string> arrows;
  for (const auto& event : document["traceEvents"]) {
    if (event.contains("id")) {
      arrows.push_back(absl::StrCat(event["ph"].get<std::string>(), " ", event["id"].get<std::string>()));
    }
  }
  EXPECT_THAT(arrows, ElementsAre("f both", "s both"));
}

TEST(MergeTraces, AMergedFileCanBeParsed) {
  const auto merged = MergeTraces({Task("worker/10", "a", 0, 4000), Task("ps/0", "a", 0, 2500)});
  ASSERT_TRUE(merged.ok());
  const auto traces = ParseTraces(*merged, "merged.json");
  ASSERT_TRUE(traces.ok()) << traces.status();
  ASSERT_EQ(traces->size(), 2u);
  EXPECT_EQ((*traces)[0].task, "ps/0");
  EXPECT_EQ((*traces)[1].task, "worker/10");
  ASSERT_EQ((*traces)[1].slices.size(), 1u);
  EXPECT_EQ((*traces)[1].slices[0].begin, 1500);
  EXPECT_EQ((*traces)[1].lanes[0].name, "apply");
}

TEST(MergeTraces, OverlappingTimelinesOfOneTaskAreRefused) {
  const auto merged = MergeTraces({Task("ps/0", "a", 0, 0), Task("ps/0", "a", 0, 9)});
  EXPECT_EQ(merged.status().message(), "two timelines of ps/0 overlap in time");
}

TEST(MergeTraces, SuccessiveLivesOfATaskAreNumbered) {
  const auto merged =
      MergeTraces({Task("worker/10", "a", 0, 0), Task("worker/2", "a", 0, 40), Task("worker/2", "a", 0, 0),
                   Task("worker/2", "a", 0, 20), Task("ps/0", "a", 0, 0)});
  ASSERT_TRUE(merged.ok()) << merged.status();
  std::vector<std::pair<std::string, int64_t>> begins;
  const auto traces = ParseTraces(*merged, "merged.json");
  ASSERT_TRUE(traces.ok()) << traces.status();
  for (const TaskTrace& trace : *traces) begins.emplace_back(trace.task, trace.slices[0].begin);
  EXPECT_THAT(begins, ElementsAre(Pair("ps/0", 0), Pair("worker/2 life 1", 0), Pair("worker/2 life 2", 20),
                                  Pair("worker/2", 40), Pair("worker/10", 0)));
}

TEST(MergeTraces, ImplausibleClocksAreRefused) {
  constexpr int64_t kHuge = 4'000'000'000'000'000'000;
  TaskTrace worker = Task("worker/0", "b", 0, 0);
  worker.clock.unix_nanos = kHuge;
  worker.clock.others["ps/0"] = {.ahead_nanos = kHuge, .round_trip_nanos = kHuge};
  TaskTrace other = Task("worker/1", "b", 0, 0);
  other.clock.steady_nanos = -kHuge;
  const auto merged = MergeTraces({worker, other, Task("ps/0", "a", 0, 0)});
  EXPECT_EQ(merged.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(merged.status().message()), HasSubstr("is decades later than another"));
}

TEST(MergeTraceFiles, FaultsNameTheFile) {
  const auto path = [](const char* name) {
    std::string unused = absl::StrCat(::testing::TempDir(), "/cairn_merge_", getpid(), name);
    std::remove(unused.c_str());
    return unused;
  };
  const std::string a = path("a"), b = path("b"), out = path("out");
  ASSERT_TRUE(WriteFileAtomically(a, ToJson(Task("ps/0", "a", 0, 0))).ok());
  ASSERT_TRUE(WriteFileAtomically(b, ToJson(Task("worker/0", "a", 0, 0))).ok());
  EXPECT_EQ(MergeTraceFiles(out, {a, b, a}).message(), absl::StrCat(a, ": given twice"));
  EXPECT_EQ(MergeTraceFiles(out, {a, path("none")}).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(FileExists(out));
  ASSERT_TRUE(MergeTraceFiles(out, {a, b}).ok());
  EXPECT_THAT(std::string(MergeTraceFiles(out, {out, b}).message()), HasSubstr("it is already merged"));
  for (const std::string& file : {a, b, out}) std::remove(file.c_str());
}

}  // namespace
}  // namespace cairn
