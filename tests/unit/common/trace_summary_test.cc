#include "common/trace/trace_summary.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

constexpr int64_t kMilli = 1'000'000;

TEST(TraceSummary, ShowsTheShareOfAStepOfEachKindOfWork) {
  TaskTrace worker;
  worker.task = "worker/0";
  worker.lanes = {{.name = "push ps/0", .place = 2}, {.name = "step", .place = 1}};
  worker.slices = {{.lane = 0, .name = "push", .begin = 0, .duration = 3 * kMilli, .step = 1},
                   {.lane = 0, .name = "push", .begin = 20 * kMilli, .duration = 1 * kMilli, .step = 2},
                   {.lane = 1, .name = "step", .begin = 0, .duration = 10 * kMilli, .step = 1},
                   {.lane = 1, .name = "compute", .begin = 0, .duration = 6 * kMilli, .step = 1},
                   {.lane = 1, .name = "step", .begin = 10 * kMilli, .duration = 30 * kMilli, .step = 2},
                   {.lane = 1, .name = "compute", .begin = 10 * kMilli, .duration = 8 * kMilli, .step = 2}};
  TaskTrace server;
  server.task = "ps/0";
  server.lanes = {{.name = "apply", .place = 1}};
  server.slices = {{.lane = 0, .name = "apply", .begin = 0, .duration = 2 * kMilli, .step = 1}};
  EXPECT_EQ(SummaryOf({server, worker}),
            "task       lane               work                    slices      median    per step    step\n"
            "ps/0       apply              apply                        1    2.000 ms    1.000 ms   5.0 %\n"
            "worker/0   step               step                         2   30.000 ms   20.000 ms 100.0 %\n"
            "                                compute                    2    8.000 ms    7.000 ms  35.0 %\n"
            "           push ps/0          push                         2    3.000 ms    2.000 ms  10.0 %\n"
            "2 steps of 20.000 ms\n");
}

TEST(TraceSummary, AcceptsNoTraces) {
  EXPECT_EQ(SummaryOf({}),
            "task       lane               work                    slices      median    per step    step\n"
            "0 steps of 0.000 ms\n");
}

}  // namespace
}  // namespace cairn
