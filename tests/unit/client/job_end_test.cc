#include "client/job_end.h"

#include <chrono>

#include "gtest/gtest.h"

namespace cairn::client {
namespace {

using std::chrono::seconds;

TEST(Silence, EndsTheJobForAWorkerWhenNoServerAnswersForTenSeconds) {
  TimePoint now{};
  Silence silence(SilenceLimit(v1::Job()), now);
  for (int look = 0; look < 4; ++look) EXPECT_FALSE(silence.IsTheEnd(/*answered=*/false, now += seconds(2)));
  EXPECT_FALSE(silence.IsTheEnd(/*answered=*/true, now += seconds(2)));
  for (int look = 0; look < 4; ++look) EXPECT_FALSE(silence.IsTheEnd(/*answered=*/false, now += seconds(2)));
  EXPECT_TRUE(silence.IsTheEnd(/*answered=*/false, now += seconds(2)));
}

// Such a job may be rolled back when its servers are back, and would wait for this worker.
TEST(Silence, LastsAMinuteIfTheJobWaitsForLostWorkers) {
  v1::Job job;
  job.set_wait_for_return(true);
  TimePoint now{};
  Silence silence(SilenceLimit(job), now);
  for (int look = 0; look < 29; ++look) EXPECT_FALSE(silence.IsTheEnd(/*answered=*/false, now += seconds(2)));
  EXPECT_TRUE(silence.IsTheEnd(/*answered=*/false, now += seconds(2)));
}

// The process was paused, and the answers to its earlier requests did not arrive in time.
TEST(Silence, TimeInWhichThisProcessWasSuspendedDoesNotCount) {
  Silence silence(SilenceLimit(v1::Job()), TimePoint{});
  EXPECT_FALSE(silence.IsTheEnd(/*answered=*/false, TimePoint(seconds(60))));
}

}  // namespace
}  // namespace cairn::client
