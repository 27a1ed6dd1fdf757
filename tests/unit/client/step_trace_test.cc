#include "client/training/step_trace.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::client {
namespace {

using testing::IsEmpty;
using testing::UnorderedElementsAre;

// "push", "wait", ... ; "flow" for the start of an arrow.
std::vector<std::string> NamesIn(const TraceRecorder& trace) {
  std::vector<std::string> names;
  for (const TraceEvent& event : trace.Collect().events) {
    names.push_back(event.kind == TraceEvent::Kind::kFlowOut ? "flow" : event.name);
  }
  return names;
}

TEST(StepTrace, APushAndItsAnswerHaveASliceEach) {
  TraceRecorder recorder("worker/0");
  recorder.AtStep(1);
  StepTrace trace(&recorder, 2);
  trace.BeginStep({.worker = 0, .incarnation = 7, .number = 1});
  const StepTrace::FirstValuesAt first = trace.NewFirstValues();
  trace.OnSending(1);
  trace.AddBytes(1, 100);
  trace.AddBytes(1, 20);
  trace.OnSent(1);
  EXPECT_THAT(NamesIn(recorder), UnorderedElementsAre("push", "flow"));
  for (const TraceEvent& event : recorder.Collect().events) {
    if (event.kind != TraceEvent::Kind::kFlowOut) EXPECT_EQ(event.bytes, 120);
  }
  *first = 1;
  trace.OnAnswer(1, first);
  EXPECT_THAT(NamesIn(recorder), UnorderedElementsAre("push", "flow", "wait", "pull"));
}

TEST(StepTrace, AnAnswerBeforeAllWasSentIsNotRecorded) {
  TraceRecorder recorder("worker/0");
  recorder.AtStep(1);
  StepTrace trace(&recorder, 1);
  trace.BeginStep({});
  trace.OnAnswer(0, trace.NewFirstValues());
  EXPECT_THAT(NamesIn(recorder), IsEmpty());
}

TEST(StepTrace, NothingIsRecordedWithoutARecorder) {
  StepTrace trace(nullptr, 1);
  trace.BeginStep({});
  trace.OnSending(0);
  trace.OnSent(0);
  EXPECT_EQ(trace.NewFirstValues(), nullptr);
  trace.OnAnswer(0, nullptr);
}

}  // namespace
}  // namespace cairn::client
