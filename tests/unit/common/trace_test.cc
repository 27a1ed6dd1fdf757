#include "common/trace/trace.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "common/system/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::SizeIs;

TraceEvent Slice(int64_t number) {
  return {.lane = TraceLane::kApply, .name = "apply", .begin = number, .end = number + 1, .step = number};
}

std::vector<TraceEvent> Sorted(std::vector<TraceEvent> events) {
  std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return events;
}

TEST(TraceRecorder, EventsRoundTrip) {
  TraceRecorder trace("worker/0");
  trace.Record({.lane = TraceLane::kPush,
                .index = 3,
                .name = "push",
                .begin = 10,
                .end = 20,
                .step = 5,
                .bytes = int64_t{1} << 40});
  const TraceFlow flow = {.worker = 7, .server = 2, .incarnation = (uint64_t{9} << 32) + 1, .number = 12};
  trace.Record(
      {.kind = TraceEvent::Kind::kFlowOut, .lane = TraceLane::kPush, .index = 3, .begin = 19, .flow = flow});
  const auto events = Sorted(trace.Collect().events);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].kind, TraceEvent::Kind::kSlice);
  EXPECT_EQ(events[0].lane, TraceLane::kPush);
  EXPECT_EQ(events[0].index, 3);
  EXPECT_STREQ(events[0].name, "push");
  EXPECT_EQ(events[0].begin, 10);
  EXPECT_EQ(events[0].end, 20);
  EXPECT_EQ(events[0].step, 5);
  EXPECT_EQ(events[0].bytes, int64_t{1} << 40);
  EXPECT_EQ(events[1].kind, TraceEvent::Kind::kFlowOut);
  EXPECT_EQ(events[1].index, 3);
  EXPECT_EQ(events[1].flow, flow);
}

TEST(TraceRecorder, ALaneWithoutAnIndexKeepsNone) {
  TraceRecorder trace("ps/0");
  trace.Record(Slice(1));
  EXPECT_EQ(trace.Collect().events.at(0).index, -1);
}

TEST(TraceRecorder, WithoutStepsEverythingIsRecordedFromTheStart) {
  TraceRecorder trace("worker/0");
  EXPECT_TRUE(Wants(&trace));
  trace.AtStep(1'000'000);
  EXPECT_TRUE(Wants(&trace));
  EXPECT_FALSE(trace.over());
}

TEST(TraceRecorder, OnlyTheRequestedStepsAreRecorded) {
  TraceRecorder trace("worker/0", {.first = 3, .last = 4});
  std::vector<int64_t> wanted;
  EXPECT_FALSE(trace.active());
  for (const int64_t step : {1, 2, 3, 4, 5}) {
    EXPECT_FALSE(trace.over());
    trace.AtStep(step);
    if (trace.active()) wanted.push_back(step);
  }
  EXPECT_THAT(wanted, ElementsAre(3, 4));
  EXPECT_TRUE(trace.over());
  trace.AtStep(3);  // rolled back to a snapshot
  EXPECT_TRUE(trace.active());
}

TEST(TraceRecorder, ANullRecorderRecordsNothing) {
  EXPECT_FALSE(Wants(nullptr));
  const TraceSpan span(nullptr, TraceLane::kStep, "step");
}

TEST(TraceRecorder, AFullRingKeepsItsNewestEventsAndCountsTheOthers) {
  TraceRecorder trace("ps/0", {}, /*events_per_thread=*/2048);
  for (int64_t i = 0; i < 5000; ++i) trace.Record(Slice(i));
  const auto collected = trace.Collect();
  const auto events = Sorted(collected.events);
  ASSERT_THAT(events, SizeIs(2047));  // the slot of the oldest event is written next
  EXPECT_EQ(collected.lost, 5000 - 2047);
  EXPECT_EQ(trace.recorded(), 5000);
  for (size_t i = 0; i < events.size(); ++i)
    ASSERT_EQ(events[i].begin, 5000 - 2047 + static_cast<int64_t>(i));
}

TEST(TraceRecorder, ThreadsRecordWithoutLosingAnything) {
  TraceRecorder trace("ps/0");
  constexpr int kThreads = 4, kEach = 5000;
  {
    std::vector<Thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back("recorder", [&trace, t] {
        for (int i = 0; i < kEach; ++i) trace.Record(Slice(t * kEach + i));
      });
    }
  }
  const auto collected = trace.Collect();
  std::set<int64_t> seen;
  for (const TraceEvent& event : collected.events) seen.insert(event.begin);
  EXPECT_EQ(seen.size(), size_t{kThreads * kEach});
  EXPECT_EQ(collected.lost, 0);
}

TEST(TraceRecorder, EventsCollectedDuringRecordingAreConsistent) {
  TraceRecorder trace("ps/0", {}, /*events_per_thread=*/1024);
  std::atomic<bool> stop{false};
  Thread writer("recorder", [&] {
    for (int64_t i = 0; !stop; ++i) {
      trace.Record({.lane = TraceLane::kApply,
                    .name = "apply",
                    .begin = i,
                    .end = 2 * i,
                    .step = 3 * i,
                    .bytes = 4 * i});
    }
  });
  for (int round = 0; round < 200; ++round) {
    const auto collected = trace.Collect();
    const auto events = Sorted(collected.events);
    for (size_t i = 0; i < events.size(); ++i) {
      if (i > 0) {
        ASSERT_LT(events[i - 1].begin, events[i].begin);
      }
      ASSERT_EQ(events[i].end, 2 * events[i].begin);
      ASSERT_EQ(events[i].step, 3 * events[i].begin);
      ASSERT_EQ(events[i].bytes, 4 * events[i].begin);
    }
  }
  stop = true;
}

TEST(TraceRecorder, AThreadReusesTheRingOfOneThatEnded) {
  TraceRecorder trace("ps/0", {}, /*events_per_thread=*/1024);
  for (int t = 0; t < 100; ++t) {
    Thread("recorder", [&] {
      for (int64_t i = 0; i < 20; ++i) trace.Record(Slice(20 * t + i));
    }).Join();
    if (t == 9) EXPECT_THAT(trace.Collect().events, SizeIs(200));
  }
  EXPECT_THAT(trace.Collect().events, SizeIs(1023)) << "each thread allocated a ring";
}

TEST(TraceRecorder, TwoRecordersOnOneThreadAreIndependent) {
  TraceRecorder first("ps/0"), second("ps/1");
  for (int64_t i = 0; i < 10; ++i) {
    first.Record(Slice(i));
    second.Record(Slice(100 + i));
  }
  EXPECT_THAT(first.Collect().events, AllOf(SizeIs(10), Each(Field(&TraceEvent::begin, ::testing::Lt(10)))));
  EXPECT_THAT(second.Collect().events,
              AllOf(SizeIs(10), Each(Field(&TraceEvent::begin, ::testing::Ge(100)))));
}

TEST(TraceRecorder, TheClockSampleWithTheShortestRoundTripIsKept) {
  TraceRecorder trace("worker/0");
  const TimePoint sent = std::chrono::steady_clock::now();
  const auto sample = [&](std::chrono::nanoseconds round_trip, int64_t ahead) {
    const TimePoint received = sent + round_trip;
    trace.AddClockSample("ps/0", sent, received, trace.UnixNanos(sent + round_trip / 2) + ahead);
  };
  sample(std::chrono::milliseconds(10), 111);
  sample(std::chrono::milliseconds(2), 5000);
  sample(std::chrono::milliseconds(4), 333);
  const auto clocks = trace.Collect().clocks;
  ASSERT_THAT(clocks, SizeIs(1));
  EXPECT_EQ(clocks.at("ps/0").ahead_nanos, 5000);
  EXPECT_EQ(clocks.at("ps/0").round_trip_nanos, 2'000'000);
}

TEST(TraceSpan, EndsOnceAtEndOrDestruction) {
  TraceRecorder trace("worker/0");
  trace.AtStep(6);
  {
    TraceSpan inner(&trace, TraceLane::kStep, "input");
    inner.End();
    EXPECT_THAT(trace.Collect().events, SizeIs(1));
  }
  EXPECT_THAT(trace.Collect().events, SizeIs(1));
  const TraceEvent event = trace.Collect().events[0];
  EXPECT_STREQ(event.name, "input");
  EXPECT_EQ(event.step, 6);
  EXPECT_LE(event.begin, event.end);
}

TEST(TraceSpan, IsRecordedIfItsBeginWasToBeRecorded) {
  TraceRecorder trace("worker/0", {.first = 1, .last = 1});
  trace.AtStep(1);
  {
    const TraceSpan span(&trace, TraceLane::kSnapshot, "save");
    trace.AtStep(2);
  }
  EXPECT_THAT(trace.Collect().events, SizeIs(1));
  {
    const TraceSpan late(&trace, TraceLane::kSnapshot, "save");
  }
  EXPECT_THAT(trace.Collect().events, SizeIs(1));
}

}  // namespace
}  // namespace cairn
