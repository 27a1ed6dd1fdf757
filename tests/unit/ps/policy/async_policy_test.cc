#include "ps/policy/async_policy.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/policy/events.h"

namespace cairn::ps {
namespace {

using testing::IsEmpty;

const PolicyConfig kAsync{.mode = "async", .expected_workers = 2};

TEST(AsyncPolicy, EveryGradientIsAppliedAtOnceWithItsStaleness) {
  const auto policy = Play(kAsync, {
                                       {Join(0), ""},
                                       {Push(0, {.step = 1, .base = 0}), "v1: 0"},
                                       {Join(1), ""},
                                       {Push(1, {.step = 1, .base = 0}), "v2: 1 staleness 1"},
                                       {Push(0, {.step = 2, .base = 0}), "v3: 0 staleness 2"},
                                       {Push(1, {.step = 2, .base = 3}), "v4: 1"},
                                   });
  EXPECT_EQ(policy->version(), 4);
  EXPECT_EQ(policy->counters().accepted, 4);
  EXPECT_EQ(policy->counters().staleness_max, 2);
  EXPECT_EQ(policy->counters().staleness_histogram[0], 2);
  EXPECT_EQ(policy->counters().staleness_histogram[1], 1);
  EXPECT_EQ(policy->counters().staleness_histogram[2], 1);
}

TEST(AsyncPolicy, ARetriedPushIsAppliedOnce) {
  const auto policy = Play(kAsync, {
                                       {Join(0), ""},
                                       {Push(0, {.step = 1, .base = 0}), "v1: 0"},
                                       {Push(0, {.step = 1, .base = 0}), ""},
                                   });
  EXPECT_EQ(policy->version(), 1);
  EXPECT_EQ(policy->counters().duplicate, 1);
}

TEST(AsyncPolicy, AGradientBeyondMaxStalenessIsRefused) {
  PolicyConfig config = kAsync;
  config.max_staleness = 1;
  const auto policy = Play(config, {
                                       {Join(0), ""},
                                       {Join(1), ""},
                                       {Push(0, {.step = 1, .base = 0}), "v1: 0"},
                                       {Push(0, {.step = 2, .base = 0}), "v2: 0 staleness 1"},
                                       {Push(1, {.step = 1, .base = 0}), "refuse 1: stale by 2"},
                                       {Push(1, {.step = 2, .base = 1}), "v3: 1 staleness 1"},
                                   });
  EXPECT_EQ(policy->counters().stale, 1);
  EXPECT_EQ(policy->counters().staleness_max, 1) << "refused gradients are not counted";
}

TEST(AsyncPolicy, OnlyTheLivingIncarnationMayPush) {
  const auto policy =
      Play(kAsync, {
                       {Push(0, {.step = 1, .base = 0}), "refuse 0: not a member"},
                       {Join(0), ""},
                       {Join(0, 2), ""},
                       {Push(0, {.step = 1, .base = 0}), "refuse 0: old incarnation"},
                       {Push(0, {.step = 1, .base = 0, .incarnation = 2}), "v1: 0"},
                       {Leave(0, 1), ""},
                       {Push(0, {.step = 2, .base = 1, .incarnation = 2}), "v2: 0"},
                       {Leave(0, 2), ""},
                       {Push(0, {.step = 3, .base = 2, .incarnation = 2}), "refuse 0: not a member"},
                   });
  EXPECT_EQ(policy->counters().refused_other, 3);
}

TEST(AsyncPolicy, AGradientFromAVersionNotYetReachedIsRefused) {
  Play(kAsync, {{Join(0), ""}, {Push(0, {.step = 1, .base = 1}), "refuse 0: ahead"}});
}

TEST(AsyncPolicy, NothingIsAppliedAfterTheFinalVersion) {
  PolicyConfig config = kAsync;
  config.final_version = 1;
  Play(config, {
                   {Join(0), ""},
                   {Join(1), ""},
                   {Push(0, {.step = 1, .base = 0}), "v1: 0"},
                   {Push(1, {.step = 1, .base = 0}), "refuse 1: finished"},
               });
}

TEST(AsyncPolicy, NothingIsAppliedAfterAnEnd) {
  PolicyConfig config = kAsync;
  config.final_version = 5;
  Play(config, {
                   {Join(0), ""},
                   {Push(0, {.step = 1, .base = 0}), "v1: 0"},
                   {End(), ""},
                   {Push(0, {.step = 2, .base = 1}), "refuse 0: finished"},
               });
}

TEST(AsyncPolicy, WaitsForNoOtherWorker) {
  AsyncPolicy policy(kAsync);
  EXPECT_THAT(policy.WaitingFor(), IsEmpty());
}

}  // namespace
}  // namespace cairn::ps
