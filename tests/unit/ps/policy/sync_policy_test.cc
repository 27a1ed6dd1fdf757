#include "ps/policy/sync_policy.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/policy/events.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

PolicyConfig Sync(int workers, int replicas_to_aggregate = 0) {
  return {.mode = "sync", .expected_workers = workers, .replicas_to_aggregate = replicas_to_aggregate};
}

TEST(SyncPolicy, ARoundClosesWithOneGradientOfEachWorker) {
  const auto policy = Play(Sync(2), {
                                        {Join(0), ""},
                                        {Join(1), ""},
                                        {Push(0, {.step = 1, .base = 0}), ""},
                                        {Push(1, {.step = 1, .base = 0}), "v1: 0 1"},
                                        {Push(1, {.step = 2, .base = 1}), ""},
                                        {Push(0, {.step = 2, .base = 1}), "v2: 0 1"},
                                    });
  EXPECT_EQ(policy->version(), 2);
  EXPECT_EQ(policy->counters().accepted, 4);
}

TEST(SyncPolicy, ContributorsAreInWorkerOrder) {
  Play(Sync(3), {
                    {Join(2), ""},
                    {Join(0), ""},
                    {Join(1), ""},
                    {Push(2, {.step = 1, .base = 0}), ""},
                    {Push(0, {.step = 1, .base = 0}), ""},
                    {Push(1, {.step = 1, .base = 0}), "v1: 0 1 2"},
                });
}

TEST(SyncPolicy, TheContributorsKeepTheirKeysAndExamples) {
  SyncPolicy policy(Sync(1));
  policy.OnJoin(0, 9);
  const Gradient gradient{{0, 9, 5}, 0, 32};
  EXPECT_THAT(policy.OnGradient(gradient), ElementsAre(Decision(Apply{1, {gradient}, 0})));
}

TEST(SyncPolicy, NoRoundClosesBeforeAllExpectedWorkersJoined) {
  Play(Sync(3), {
                    {Join(0), ""},
                    {Push(0, {.step = 1, .base = 0}), ""},
                    {Join(1), ""},
                    {Push(1, {.step = 1, .base = 0}), ""},
                    {Join(2), ""},
                    {Push(2, {.step = 1, .base = 0}), "v1: 0 1 2"},
                });
}

TEST(SyncPolicy, AWorkerThatJoinedAndDiedCountsAsJoined) {
  Play(Sync(2), {
                    {Join(1), ""},
                    {Leave(1), ""},
                    {Join(0), ""},
                    {Push(0, {.step = 1, .base = 0}), "v1: 0"},
                });
}

TEST(SyncPolicy, TheFirstRoundDoesNotWaitForALostWorker) {
  Play(Sync(2), {
                    {Join(0), ""},
                    {Push(0, {.step = 1, .base = 0}), ""},
                    {Leave(1), "v1: 0"},
                });
}

TEST(SyncPolicy, TheLastJoinClosesARoundOfFewerReplicas) {
  Play(Sync(3, /*replicas_to_aggregate=*/2), {
                                                 {Join(1), ""},
                                                 {Join(0), ""},
                                                 {Push(1, {.step = 1, .base = 0}), ""},
                                                 {Push(0, {.step = 1, .base = 0}), ""},
                                                 {Join(2), "v1: 0 1"},
                                             });
}

TEST(SyncPolicy, ExcessGradientsOfTheFirstRoundAreRefusedAsStale) {
  Play(Sync(3, /*replicas_to_aggregate=*/1), {
                                                 {Join(1), ""},
                                                 {Join(0), ""},
                                                 {Push(1, {.step = 1, .base = 0}), ""},
                                                 {Push(0, {.step = 1, .base = 0}), ""},
                                                 {Join(2), "v1: 1; refuse 0: stale by 1"},
                                             });
}

TEST(SyncPolicy, StalePushIsRefusedAndNotCounted) {
  const auto policy = Play(Sync(2), {
                                        {Join(0), ""},
                                        {Join(1), ""},
                                        {Push(0, {.step = 1, .base = 0}), ""},
                                        {Push(1, {.step = 1, .base = 0}), "v1: 0 1"},
                                        {Push(1, {.step = 2, .base = 0}), "refuse 1: stale by 1"},
                                        {Push(0, {.step = 2, .base = 1}), ""},
                                        {Push(1, {.step = 3, .base = 1}), "v2: 0 1"},
                                    });
  EXPECT_EQ(policy->counters().stale, 1);
  EXPECT_EQ(policy->counters().accepted, 4);
}

TEST(SyncPolicy, ABackupWorkersLateGradientIsRefusedWithoutAffectingTheRound) {
  Play(Sync(3, /*replicas_to_aggregate=*/2), {
                                                 {Join(0), ""},
                                                 {Join(1), ""},
                                                 {Join(2), ""},
                                                 {Push(2, {.step = 1, .base = 0}), ""},
                                                 {Push(0, {.step = 1, .base = 0}), "v1: 0 2"},
                                                 {Push(1, {.step = 1, .base = 0}), "refuse 1: stale by 1"},
                                                 {Push(1, {.step = 2, .base = 1}), ""},
                                                 {Push(2, {.step = 2, .base = 1}), "v2: 1 2"},
                                             });
}

TEST(SyncPolicy, ReplicasBeyondTheLiveWorkersAreNotWaitedFor) {
  Play(Sync(2, /*replicas_to_aggregate=*/5), {
                                                 {Join(0), ""},
                                                 {Join(1), ""},
                                                 {Push(0, {.step = 1, .base = 0}), ""},
                                                 {Push(1, {.step = 1, .base = 0}), "v1: 0 1"},
                                             });
}

TEST(SyncPolicy, AFastWorkerDoesNotContributeTwiceToARound) {
  Play(Sync(2), {
                    {Join(0), ""},
                    {Join(1), ""},
                    {Push(0, {.step = 1, .base = 0}), ""},
                    {Push(0, {.step = 2, .base = 0}), "refuse 0: second in round"},
                    {Push(1, {.step = 1, .base = 0}), "v1: 0 1"},
                });
}

TEST(SyncPolicy, ARetriedPushCountsOnce) {
  const auto policy = Play(Sync(2), {
                                        {Join(0), ""},
                                        {Join(1), ""},
                                        {Push(0, {.step = 1, .base = 0}), ""},
                                        {Push(0, {.step = 1, .base = 0}), ""},
                                        {Push(1, {.step = 1, .base = 0}), "v1: 0 1"},
                                        {Push(0, {.step = 1, .base = 0}), ""},
                                    });
  EXPECT_EQ(policy->counters().duplicate, 2);
  EXPECT_EQ(policy->counters().accepted, 2);
  EXPECT_EQ(policy->counters().stale, 0);
}

TEST(SyncPolicy, AGradientFromAVersionNotYetReachedIsRefused) {
  Play(Sync(1), {
                    {Join(0), ""},
                    {Push(0, {.step = 1, .base = 3}), "refuse 0: ahead"},
                });
}

TEST(SyncPolicy, AGradientOfANonMemberIsRefused) {
  Play(Sync(1), {
                    {Join(0), ""},
                    {Push(4, {.step = 1, .base = 0}), "refuse 4: not a member"},
                });
}

TEST(SyncPolicy, TheRoundClosesWhenTheMissingWorkerDies) {
  Play(Sync(3), {
                    {Join(0), ""},
                    {Join(1), ""},
                    {Join(2), ""},
                    {Push(0, {.step = 1, .base = 0}), ""},
                    {Push(2, {.step = 1, .base = 0}), ""},
                    {Leave(1), "v1: 0 2"},
                    {Push(2, {.step = 2, .base = 1}), ""},
                    {Push(0, {.step = 2, .base = 1}), "v2: 0 2"},
                });
}

TEST(SyncPolicy, ADeadWorkersStagedGradientIsDropped) {
  Play(Sync(3), {
                    {Join(0), ""},
                    {Join(1), ""},
                    {Join(2), ""},
                    {Push(1, {.step = 1, .base = 0}), ""},
                    {Push(0, {.step = 1, .base = 0}), ""},
                    {Leave(1), "refuse 1: not a member"},
                    {Push(2, {.step = 1, .base = 0}), "v1: 0 2"},
                });
}

TEST(SyncPolicy, ADeadWorkersLatePushIsRefused) {
  Play(Sync(2), {
                    {Join(0), ""},
                    {Join(1), ""},
                    {Leave(1), ""},
                    {Push(1, {.step = 1, .base = 0}), "refuse 1: not a member"},
                });
}

TEST(SyncPolicy, ARoundWithNoLiveWorkerStaysOpen) {
  const auto policy = Play(Sync(1), {
                                        {Join(0), ""},
                                        {Push(0, {.step = 1, .base = 0}), "v1: 0"},
                                        {Leave(0), ""},
                                    });
  EXPECT_EQ(policy->version(), 1);
  EXPECT_THAT(policy->WaitingFor(), IsEmpty());
}

TEST(SyncPolicy, ARoundHasThoseThatHaveStagedAndWaitsForTheOtherLiveOnes) {
  const auto policy = Play(Sync(3), {
                                        {Join(0), ""},
                                        {Push(0, {.step = 1, .base = 0}), ""},
                                        {Join(2), ""},
                                        {Leave(2), ""},
                                    });
  EXPECT_THAT(policy->WaitingFor(), ElementsAre(1));
  EXPECT_THAT(policy->next_update().staged, ElementsAre(0));
}

TEST(SyncPolicy, ARestartedWorkersOldGradientIsRefusedAndTheNewOneCounts) {
  Play(Sync(2), {
                    {Join(0), ""},
                    {Join(1), ""},
                    {Push(1, {.step = 8, .base = 0}), ""},
                    {Join(1, 2), "refuse 1: old incarnation"},
                    {Push(0, {.step = 1, .base = 0}), ""},
                    {Push(1, {.step = 9, .base = 0, .incarnation = 1}), "refuse 1: old incarnation"},
                    {Push(1, {.step = 1, .base = 0, .incarnation = 2}), "v1: 0 1"},
                });
}

TEST(SyncPolicy, ALateLeaseExpiryOfTheOldIncarnationDoesNotRemoveTheNewOne) {
  Play(Sync(2), {
                    {Join(0), ""},
                    {Join(1), ""},
                    {Join(1, 2), ""},
                    {Push(0, {.step = 1, .base = 0}), ""},
                    {Leave(1, 1), ""},
                    {Push(1, {.step = 1, .base = 0, .incarnation = 2}), "v1: 0 1"},
                });
}

TEST(SyncPolicy, TheRoundWaitsAgainForAReturningWorker) {
  Play(Sync(2), {
                    {Join(0), ""},
                    {Join(1), ""},
                    {Leave(1), ""},
                    {Push(0, {.step = 1, .base = 0}), "v1: 0"},
                    {Join(1, 2), ""},
                    {Push(0, {.step = 2, .base = 1}), ""},
                    {Push(1, {.step = 1, .base = 1, .incarnation = 2}), "v2: 0 1"},
                });
}

TEST(SyncPolicy, ARepeatedJoinKeepsTheStagedGradient) {
  Play(Sync(2), {
                    {Join(0), ""},
                    {Join(1), ""},
                    {Push(0, {.step = 1, .base = 0}), ""},
                    {Join(0), ""},
                    {Push(1, {.step = 1, .base = 0}), "v1: 0 1"},
                });
}

TEST(SyncPolicy, NothingIsAppliedAfterTheFinalVersion) {
  PolicyConfig config = Sync(1);
  config.final_version = 2;
  const auto policy = Play(config, {
                                       {Join(0), ""},
                                       {Push(0, {.step = 1, .base = 0}), "v1: 0"},
                                       {Push(0, {.step = 2, .base = 1}), "v2: 0"},
                                       {Push(0, {.step = 3, .base = 2}), "refuse 0: finished"},
                                   });
  EXPECT_EQ(policy->version(), 2);
  EXPECT_THAT(policy->WaitingFor(), IsEmpty());
}

TEST(SyncPolicy, ExcessGradientsOfTheLastRoundAreRefusedAsFinished) {
  PolicyConfig config = Sync(2, /*replicas_to_aggregate=*/1);
  config.final_version = 1;
  Play(config, {
                   {Join(0), ""},
                   {Push(0, {.step = 1, .base = 0}), ""},
                   {Join(1), "v1: 0"},
                   {Push(1, {.step = 1, .base = 0}), "refuse 1: finished"},
               });
}

TEST(SyncPolicy, AnEndRefusesStagedAndLaterGradients) {
  const auto policy =
      Play(Sync(2), {
                        {Join(0), ""},
                        {Join(1), ""},
                        {Push(0, {.step = 1, .base = 0}), ""},
                        {Push(1, {.step = 1, .base = 0}), "v1: 0 1"},
                        {Push(1, {.step = 2, .base = 1}), ""},
                        {End(), "refuse 1: finished"},
                        {End(), ""},
                        {Push(0, {.step = 2, .base = 1}), "refuse 0: finished"},
                        {Join(1, 2), ""},
                        {Push(1, {.step = 1, .base = 1, .incarnation = 2}), "refuse 1: finished"},
                        {Leave(0), ""},
                    });
  EXPECT_EQ(policy->version(), 1);
  EXPECT_EQ(policy->counters().refused_other, 3);
  EXPECT_THAT(policy->WaitingFor(), IsEmpty());
}

TEST(SyncPolicy, AnEndAfterTheLastVersionChangesNothing) {
  PolicyConfig config = Sync(1);
  config.final_version = 1;
  Play(config, {
                   {Join(0), ""},
                   {Push(0, {.step = 1, .base = 0}), "v1: 0"},
                   {End(), ""},
                   {Push(0, {.step = 2, .base = 1}), "refuse 0: finished"},
               });
}

TEST(SyncPolicy, AJobRestoredAtItsEndAppliesNothing) {
  PolicyConfig config = Sync(1);
  config.initial_version = 7;
  config.final_version = 5;
  Play(config, {{Join(0), ""}, {Push(0, {.step = 1, .base = 7}), "refuse 0: finished"}});
}

TEST(SyncPolicy, VersionsContinueFromTheRestoredOne) {
  PolicyConfig config = Sync(1);
  config.initial_version = 100;
  Play(config, {{Join(0), ""}, {Push(0, {.step = 1, .base = 100}), "v101: 0"}});
}

TEST(SyncPolicy, ReportsWhichWorkersItWaitsFor) {
  SyncPolicy policy(Sync(3));
  EXPECT_THAT(policy.WaitingFor(), ElementsAre(0, 1, 2));
  policy.OnJoin(1, 1);
  policy.OnGradient({{1, 1, 1}, 0, 1});
  EXPECT_THAT(policy.WaitingFor(), ElementsAre(0, 2));
  policy.OnJoin(0, 1);
  policy.OnJoin(2, 1);
  policy.OnGradient({{2, 1, 1}, 0, 1});
  EXPECT_THAT(policy.WaitingFor(), ElementsAre(0));
  policy.OnLeave(0, 1);
  EXPECT_THAT(policy.WaitingFor(), ElementsAre(1, 2)) << "of the next round";
}

}  // namespace
}  // namespace cairn::ps
