#include "ps/policy/tallied_policy.h"

#include <gtest/gtest.h>

#include "tests/unit/ps/policy/events.h"

namespace cairn::ps {
namespace {

using Runs = std::vector<WorkPosition::Run>;

std::unique_ptr<UpdatePolicy> Make(const WorkPosition& resumed = {}) {
  auto policy = MakePolicy({.mode = "async",
                            .data = DynamicAssignment{.queue = {.num_examples = 100, .batch_size = 10},
                                                      .resumed = resumed,
                                                      .elsewhere = true}})
                    .value();
  policy->OnJoin(0, 1);
  return policy;
}

void Push(UpdatePolicy& policy, int64_t position, int64_t examples) {
  policy.OnGradient({.key = {0, 1, policy.version() + 1},
                     .base_version = policy.version(),
                     .examples = examples,
                     .position = position});
}

TEST(TalliedPolicy, CountsUnusedExamples) {
  const auto policy = Make();
  Push(*policy, 0, 10);
  Push(*policy, 30, 10);
  Push(*policy, 15, 5);
  EXPECT_EQ(policy->position()->next, 40);
  EXPECT_EQ(policy->position()->open, (Runs{{10, 5}, {20, 10}}));
  EXPECT_EQ(policy->position()->repeated, 0);
}

TEST(TalliedPolicy, LateExamplesFillTheGap) {
  const auto policy = Make();
  Push(*policy, 10, 10);
  Push(*policy, 0, 10);
  EXPECT_EQ(*policy->position(), (WorkPosition{.next = 20, .open = {}}));
}

TEST(TalliedPolicy, CountsRepeatedExamples) {
  const auto policy = Make({.next = 40, .open = {{10, 10}}});
  Push(*policy, 5, 20);  // 5 used before, 10 unused, 5 used before
  EXPECT_EQ(policy->position()->repeated, 10);
  EXPECT_TRUE(policy->position()->open.empty());
  Push(*policy, 35, 10);
  EXPECT_EQ(policy->position()->repeated, 15);
  EXPECT_EQ(policy->position()->next, 45);
}

TEST(TalliedPolicy, ARefusedPushIsNotUsed) {
  const auto policy = Make();
  policy->OnLeave(0, 1);
  Push(*policy, 0, 10);
  EXPECT_EQ(*policy->position(), WorkPosition());
}

}  // namespace
}  // namespace cairn::ps
