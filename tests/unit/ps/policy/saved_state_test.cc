// A policy that continues from the saved state of another one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cairn/v1/policy.pb.h"
#include "google/protobuf/util/message_differencer.h"
#include "ps/policy/policy_proto.h"

namespace cairn::ps {
namespace {

using testing::HasSubstr;

struct Way {
  std::string mode;
  bool data;       // assigned dynamically ...
  bool elsewhere;  // ... by another server
};

PolicyConfig ConfigOf(const Way& way) {
  PolicyConfig config = {.mode = way.mode, .expected_workers = 3};
  if (way.mode == "ssp") config.max_staleness = 1;
  if (way.data) {
    config.data = DynamicAssignment{.queue = {.num_examples = 10, .batch_size = 3, .epochs = 2},
                                    .elsewhere = way.elsewhere};
  }
  return config;
}

// Pushes for each worker of `workers` in turn: from its work item, if it has one.
std::vector<Decision> PushAll(UpdatePolicy& policy, const std::vector<int>& workers, int64_t step) {
  std::vector<Decision> all;
  for (int worker : workers) {
    Gradient gradient = {
        .key = {worker, 1, step}, .base_version = policy.version(), .examples = 3, .position = 3 * step};
    if (const auto work = policy.WorkOf(worker); work.has_value() && !work->work_items.empty()) {
      gradient.examples = work->work_items[0].count;
      gradient.position = work->work_items[0].epoch * 10 + work->work_items[0].first;
    }
    for (Decision& decision : policy.OnGradient(gradient)) all.push_back(std::move(decision));
  }
  return all;
}

class SavedPolicy : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Of, SavedPolicy,
                         testing::Values(Way{"sync", false, false}, Way{"sync", true, false},
                                         Way{"async", false, false}, Way{"async", true, false},
                                         Way{"async", true, true}, Way{"ssp", false, false},
                                         Way{"ssp", true, false}),
                         [](const auto& tested) {
                           return absl::StrCat(tested.param.mode, tested.param.data ? "_data" : "",
                                               tested.param.elsewhere ? "_elsewhere" : "");
                         });

TEST_P(SavedPolicy, DecidesLikeTheOriginal) {
  const auto policy = MakePolicy(ConfigOf(GetParam())).value();
  for (int worker : {0, 1, 2}) policy->OnJoin(worker, 1);
  PushAll(*policy, {0, 1, 2}, 1);
  PushAll(*policy, {0, 1}, 2);  // the round is open; with bounded staleness, answers are deferred
  google::protobuf::Any state;
  ASSERT_TRUE(state.ParseFromString(policy->Save().SerializeAsString()));
  const auto replica = MakePolicy(ConfigOf(GetParam())).value();
  ASSERT_EQ(replica->Load(state), absl::OkStatus());

  const auto same = [&] {
    EXPECT_EQ(replica->version(), policy->version());
    EXPECT_EQ(replica->WaitingFor(), policy->WaitingFor());
    EXPECT_EQ(replica->counters().accepted, policy->counters().accepted);
    EXPECT_EQ(replica->position(), policy->position());
    for (int worker : {0, 1, 2}) {
      EXPECT_EQ(replica->ClockOf(worker), policy->ClockOf(worker));
      const auto theirs = policy->WorkOf(worker), ours = replica->WorkOf(worker);
      ASSERT_EQ(ours.has_value(), theirs.has_value());
      if (ours.has_value()) {
        EXPECT_EQ(ours->work_items, theirs->work_items);
      }
    }
  };
  same();
  EXPECT_GT(policy->version(), 0);
  EXPECT_EQ(PushAll(*replica, {2}, 2), PushAll(*policy, {2}, 2));
  same();
  EXPECT_EQ(replica->OnLeave(1, 1), policy->OnLeave(1, 1));
  EXPECT_EQ(PushAll(*replica, {0, 2}, 3), PushAll(*policy, {0, 2}, 3));
  EXPECT_EQ(replica->OnEnd(), policy->OnEnd());
  same();
}

TEST_P(SavedPolicy, RefusesWorkersThatTheJobLacks) {
  const auto policy = MakePolicy(ConfigOf(GetParam())).value();
  for (int worker : {0, 1, 2}) policy->OnJoin(worker, 1);
  PolicyConfig config = ConfigOf(GetParam());
  config.most_workers = 2;
  const auto smaller = MakePolicy(config).value();
  EXPECT_EQ(smaller->Load(policy->Save()),
            absl::InvalidArgumentError("worker 2, but the number of workers is 2"));
}

TEST_P(SavedPolicy, AStateThatIsRefusedHasNoEffect) {
  const auto policy = MakePolicy(ConfigOf(GetParam())).value();
  for (int worker : {0, 1, 2}) policy->OnJoin(worker, 1);
  PushAll(*policy, {0, 1, 2}, 1);
  const google::protobuf::Any before = policy->Save();
  EXPECT_THAT(std::string(policy->Load({}).message()), HasSubstr("the state of a policy is ''"));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(policy->Save(), before));
}

TEST(PolicyState, RefusesTheStateOfAnotherPolicy) {
  const auto sync = MakePolicy({.mode = "sync"}).value(), async = MakePolicy({.mode = "async"}).value();
  EXPECT_THAT(
      std::string(async->Load(sync->Save()).message()),
      testing::AllOf(HasSubstr("cairn.v1.SyncPolicyState"), HasSubstr("expected cairn.v1.AsyncPolicyState")));
}

TEST(PolicyState, RefusesImpossibleCounts) {
  const auto policy = MakePolicy({.mode = "ssp", .max_staleness = 1}).value();
  v1::SspPolicyState version, clock, counter, slowest;
  version.mutable_core()->set_version(-1);
  (*clock.mutable_clocks())[0] = kMaxCounted + 1;
  counter.mutable_core()->mutable_counters()->add_staleness_histogram(-1);
  slowest.set_slowest(-2);
  for (const v1::SspPolicyState& state : {version, clock, counter, slowest}) {
    EXPECT_THAT(std::string(policy->Load(Pack(state)).message()), HasSubstr(" cannot be "));
  }
}

TEST(PolicyState, RefusesATallyWithOverlappingRuns) {
  const auto policy = MakePolicy(ConfigOf({"async", true, true})).value();
  v1::TalliedPolicyState state;
  ASSERT_TRUE(policy->Save().UnpackTo(&state));
  state.mutable_tally()->set_next(9);
  for (int64_t begin : {2, 3}) {
    state.mutable_tally()->add_open()->set_begin(begin);
    state.mutable_tally()->mutable_open()->rbegin()->set_count(2);
  }
  EXPECT_EQ(policy->Load(Pack(state)),
            absl::InvalidArgumentError("2 unfinished examples from 3 on do not fit among the first 9"));
}

}  // namespace
}  // namespace cairn::ps
