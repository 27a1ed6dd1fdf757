#include "common/trace/trace_file.h"

#include <nlohmann/json.hpp>
#include <ostream>

#include "common/core/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using ::testing::StartsWith;

// The begin of all recorded times; nanoseconds of the steady clock, far in the past.
constexpr int64_t kThen = 1000;

void AddSlice(TraceRecorder& trace, TraceLane lane, const char* name, int64_t begin, int64_t end,
              int index = -1) {
  trace.Record({.lane = lane, .index = index, .name = name, .begin = kThen + begin, .end = kThen + end});
}

// One line "apply: update 0+10" per slice, sorted by lane and begin.
std::vector<std::string> Lines(const TaskTrace& trace) {
  std::vector<std::string> lines;
  for (const TaskTrace::Slice& slice : trace.slices) {
    lines.push_back(
        absl::StrCat(trace.lanes[slice.lane].name, ": ", slice.name, " ", slice.begin, "+", slice.duration));
  }
  return lines;
}

TEST(LayOut, DisjointAndNestedSlicesShareALane) {
  TraceRecorder trace("worker/0");
  AddSlice(trace, TraceLane::kStep, "input", 0, 4);
  AddSlice(trace, TraceLane::kStep, "step", 0, 10);
  AddSlice(trace, TraceLane::kStep, "answer", 4, 10);
  AddSlice(trace, TraceLane::kStep, "step", 10, 12);
  EXPECT_THAT(Lines(LayOut(trace)),
              ElementsAre("step: step 0+10", "step: input 0+4", "step: answer 4+6", "step: step 10+2"));
}

TEST(LayOut, SlicesThatOverlapTakeAnotherLane) {
  TraceRecorder trace("ps/0");
  AddSlice(trace, TraceLane::kReceive, "receive", 0, 10, 1);
  AddSlice(trace, TraceLane::kReceive, "receive", 5, 15, 1);
  AddSlice(trace, TraceLane::kReceive, "receive", 5, 20, 0);  // from another worker
  AddSlice(trace, TraceLane::kReceive, "receive", 12, 14, 1);
  EXPECT_THAT(Lines(LayOut(trace)),
              ElementsAre("receive worker/0: receive 5+15", "receive worker/1: receive 0+10",
                          "receive worker/1: receive 12+2", "receive worker/1 (2): receive 5+10"));
}

TEST(LayOut, AnArrowBelongsToTheSliceThatContainsIt) {
  TraceRecorder trace("worker/3");
  AddSlice(trace, TraceLane::kPush, "push", 0, 10, 0);
  AddSlice(trace, TraceLane::kPush, "push", 5, 15, 0);
  const auto arrow = [&](int64_t at, int64_t number) {
    trace.Record({.kind = TraceEvent::Kind::kFlowOut,
                  .lane = TraceLane::kPush,
                  .index = 0,
                  .begin = kThen + at,
                  .flow = {.worker = 3, .server = 0, .incarnation = 1, .number = number}});
  };
  arrow(9, 1);
  arrow(14, 2);
  arrow(20, 3);  // the slice that it begins in was not recorded
  const TaskTrace laid = LayOut(trace);
  ASSERT_THAT(laid.flows, SizeIs(2));
  EXPECT_EQ(laid.lanes[laid.flows[0].lane].name, "push ps/0");
  EXPECT_EQ(laid.lanes[laid.flows[1].lane].name, "push ps/0 (2)");
  EXPECT_EQ(laid.flows[1].at, 14);
  EXPECT_EQ(laid.flows[1].id, "worker/3 life 1 push 2 to ps/0");
}

TEST(LayOut, NoSliceIsEmpty) {
  TraceRecorder trace("ps/0");
  AddSlice(trace, TraceLane::kApply, "apply", 3, 3);
  EXPECT_THAT(Lines(LayOut(trace)), ElementsAre("apply: apply 0+1"));
}

TEST(TraceJson, IsInChromesFormat) {
  TraceRecorder trace("worker/1");
  trace.Record({.lane = TraceLane::kPush,
                .index = 0,
                .name = "push \"it\"",
                .begin = kThen,
                .end = kThen + 1'234'567,
                .step = 8,
                .bytes = 64});
  trace.Record({.kind = TraceEvent::Kind::kFlowIn, .lane = TraceLane::kPush, .index = 0, .begin = kThen + 5});
  const auto document = ParseJson(ToJson(LayOut(trace)), "t.json");
  ASSERT_TRUE(document.ok()) << document.status();
  const auto& events = (*document)["traceEvents"];
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0]["args"]["name"], "/job:worker/task:1");
  EXPECT_EQ(events[2]["args"]["name"], "push ps/0");
  const auto& slice = events[4];
  EXPECT_EQ(slice["ph"], "X");
  EXPECT_EQ(slice["name"], "push \"it\"");
  EXPECT_EQ(slice["ts"], 0.0);
  EXPECT_EQ(slice["dur"], 1234.567);
  EXPECT_EQ(slice["tid"], events[2]["tid"]);
  EXPECT_EQ(slice["args"], nlohmann::json({{"step", 8}, {"bytes", 64}}));
  EXPECT_EQ(events[5]["ph"], "f");
  EXPECT_EQ(events[5]["bp"], "e");
  EXPECT_EQ(events[5]["ts"], 0.005);
  EXPECT_EQ((*document)["otherData"]["task"], "worker/1");
}

TEST(TraceJson, RoundTrips) {
  TraceRecorder recorder("worker/0");
  AddSlice(recorder, TraceLane::kForward, "forward", 0, 999'999'999'999);
  AddSlice(recorder, TraceLane::kForward, "layer 'conv2d'", 1, 1001);
  AddSlice(recorder, TraceLane::kStep, "step", 0, 999'999'999'999);
  const TimePoint now = std::chrono::steady_clock::now();
  recorder.AddClockSample("ps/1", now, now + std::chrono::microseconds(3), recorder.UnixNanos(now) - 77);
  const TaskTrace trace = LayOut(recorder);
  const auto read = ParseTrace(ToJson(trace), "t.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->task, "worker/0");
  EXPECT_EQ(read->clock.boot, trace.clock.boot);
  EXPECT_EQ(read->clock.steady_nanos, kThen);
  EXPECT_EQ(read->clock.unix_nanos, trace.clock.unix_nanos);
  EXPECT_EQ(read->clock.others.at("ps/1").ahead_nanos, -77 - 1500);
  EXPECT_EQ(read->clock.others.at("ps/1").round_trip_nanos, 3000);
  EXPECT_EQ(Lines(*read), Lines(trace));
}

struct Fault {
  const char* what;
  const char* text;
  const char* message;
};
void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.what;
}

class BrokenTrace : public ::testing::TestWithParam<Fault> {};

constexpr char kOther[] =
    R"("otherData":{"cairn_trace":1,"task":"ps/0","boot":"b","steady_nanos":0,"unix_nanos":0,"lost_events":0})";

TEST_P(BrokenTrace, IsRefusedNamingFileAndPosition) {
  std::string text = GetParam().text;
  if (text[0] == '[') text = absl::StrCat("{\"traceEvents\":", text, ",\n", kOther, "}");
  const auto read = ParseTrace(text, "a.json");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(read.status().message()), StartsWith(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Faults, BrokenTrace,
    ::testing::Values(
        Fault{"Cut", "{\"traceEvents\":[\n{\"ph\":\"X\",", "a.json:2: not valid JSON: "},
        Fault{"Array", "{\"events\":[]}", "a.json: no object with an array \"traceEvents\""},
        Fault{"NotOurs", "{\"traceEvents\":[]}", "a.json: not the timeline of a Cairn task"},
        Fault{"Merged", "{\"traceEvents\":[],\"otherData\":{\"cairn_trace\":1,\"tasks\":{}}}",
              "a.json: contains several tasks: it is already merged"},
        Fault{
            "Clock",
            R"({"traceEvents":[],"otherData":{"cairn_trace":1,"task":"ps/0","boot":"b","steady_nanos":1e3}})",
            "a.json: otherData.steady_nanos is not a whole number"},
        Fault{"NoObject", "[\n1]", "a.json:2: event 0: not an object"},
        Fault{"NoTime",
              "[\n{\"ph\":\"M\",\"name\":\"x\",\"pid\":1,\"tid\":1},\n{\"ph\":\"X\",\"name\":\"x\",\"pid\":1,"
              "\"tid\":1,\"dur\":1}]",
              "a.json:3: event 1: ts is not a time in microseconds of at least 0"},
        Fault{"NoProcess", R"([{"ph":"X","name":"x","tid":7,"ts":1,"dur":1}])",
              "a.json:1: event 0: pid is not a whole number"},
        Fault{"Negative", R"([{"ph":"X","name":"x","pid":1,"tid":1,"ts":1,"dur":-1}])",
              "a.json:1: event 0: dur is not a time in microseconds of at least 0"},
        Fault{"Phase", R"([{"ph":"B","name":"x","pid":1,"tid":1,"ts":1}])",
              "a.json:1: event 0: ph 'B' is not one of X, s, f and M"},
        Fault{"Arrow", R"([{"ph":"s","name":"x","pid":1,"tid":1,"ts":1}])",
              "a.json:1: event 0: id is not a string"},
        Fault{"Step", R"([{"ph":"X","name":"x","pid":1,"tid":1,"ts":1,"dur":1,"args":{"step":"a"}}])",
              "a.json:1: event 0: args.step is not a whole number"},
        Fault{
            "Overlap",
            R"([{"ph":"X","name":"x","pid":1,"tid":1,"ts":1,"dur":5},{"ph":"X","name":"y","pid":1,"tid":1,"ts":3,"dur":5}])",
            "a.json: lane 'lane 1': 'y' at 3.000 overlaps the previous slice without being nested in it"}),
    [](const auto& tested) { return tested.param.what; });

}  // namespace
}  // namespace cairn
