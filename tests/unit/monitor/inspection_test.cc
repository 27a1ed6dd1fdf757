#include "common/monitor/inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"

namespace cairn::monitor {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

v1::Counters Staleness(std::initializer_list<int64_t> histogram) {
  v1::Counters counters;
  for (const int64_t count : histogram) counters.add_staleness_histogram(count);
  return counters;
}

v1::ServerStatus WithLastTimes(std::initializer_list<int64_t> times) {
  v1::ServerStatus status;
  for (const int64_t count : times) {
    v1::Member& member = *status.add_members();
    member.set_task(absl::StrCat("worker/", status.members_size() - 1));
    member.set_times_last(count);
    member.set_late_seconds(0.25 * static_cast<double>(count));
  }
  return status;
}

TEST(StalenessQuantile, IsTheFirstThatCoversTheFraction) {
  const v1::Counters counters = Staleness({50, 49, 1});
  EXPECT_EQ(StalenessQuantile(counters, 0.5), "0");
  EXPECT_EQ(StalenessQuantile(counters, 0.99), "1");
  EXPECT_EQ(StalenessQuantile(counters, 1), "2+") << "the last entry includes higher values";
  EXPECT_EQ(StalenessQuantile(Staleness({0, 0}), 0.5), "-");
}

TEST(QuantileOf, LiesWithinItsBucket) {
  Distribution distribution({1, 2, 4});
  EXPECT_TRUE(std::isnan(QuantileOf(distribution, 0.5)));
  for (int i = 0; i < 10; ++i) distribution.Add(3);
  EXPECT_DOUBLE_EQ(QuantileOf(distribution, 0.5), 3);
  EXPECT_DOUBLE_EQ(QuantileOf(distribution, 1), 4);
  distribution.Add(100);
  EXPECT_DOUBLE_EQ(QuantileOf(distribution, 1), 4) << "the last bucket is unbounded";
}

TEST(StragglerOf, IsTheWorkerThatIsLastFarMoreOftenThanItsShare) {
  EXPECT_EQ(StragglerOf(WithLastTimes({10, 90, 0})),
            "worker/1, last in 90 % of the rounds, 250.0 ms behind the first on average");
  EXPECT_EQ(StragglerOf(WithLastTimes({30, 40, 30})), "");
  EXPECT_EQ(StragglerOf(WithLastTimes({1, 9, 0})), "") << "too few rounds";
  EXPECT_EQ(StragglerOf(WithLastTimes({100})), "") << "there is no other worker";
  EXPECT_THAT(StragglerOf(WithLastTimes({5, 95})), StartsWith("worker/1"));
}

TEST(HeadlineOf, NamesTheTasksThatAreWaitedFor) {
  v1::ServerStatus status;
  status.set_state(v1::STATE_READY);
  status.mutable_job()->set_mode(v1::MODE_SYNC);
  status.mutable_job()->mutable_optimizer()->set_name("adam");
  status.add_waiting_for("worker/2");
  status.set_waiting_seconds(0.5);
  EXPECT_THAT(HeadlineOf(status), ::testing::Not(HasSubstr("waiting")));
  status.set_waiting_seconds(12);
  EXPECT_THAT(HeadlineOf(status), HasSubstr("for 12.0 s everybody has been waiting for worker/2"));
  status.set_state(v1::STATE_FAILED);
  status.set_failure("worker/1 failed: NaN");
  EXPECT_EQ(HeadlineOf(status), "the job failed: worker/1 failed: NaN");
}

}  // namespace
}  // namespace cairn::monitor
