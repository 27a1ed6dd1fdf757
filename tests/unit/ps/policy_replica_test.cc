// A policy that continues from the state of another one, which it knows from messages only.
#include "ps/policy_replica.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn::ps {
namespace {

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

class PolicyReplica : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Of, PolicyReplica,
                         testing::Values(Way{"sync", false, false}, Way{"sync", true, false},
                                         Way{"async", false, false}, Way{"async", true, false},
                                         Way{"async", true, true}, Way{"ssp", false, false},
                                         Way{"ssp", true, false}),
                         [](const auto& tested) {
                           return absl::StrCat(tested.param.mode, tested.param.data ? "_data" : "",
                                               tested.param.elsewhere ? "_elsewhere" : "");
                         });

TEST_P(PolicyReplica, DecidesLikeTheOriginal) {
  const auto policy = MakePolicy(ConfigOf(GetParam())).value();
  for (int worker : {0, 1, 2}) policy->OnJoin(worker, 1);
  PushAll(*policy, {0, 1, 2}, 1);
  PushAll(*policy, {0, 1}, 2);  // the round is open; with bounded staleness, answers are deferred
  const auto state = FromProto(ToProto(policy->Save()));
  ASSERT_TRUE(state.ok()) << state.status();
  const auto replica = MakePolicy(ConfigOf(GetParam())).value();
  replica->Restore(*state);

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

}  // namespace
}  // namespace cairn::ps
