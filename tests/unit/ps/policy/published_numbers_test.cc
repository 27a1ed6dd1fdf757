// Numbers that other parameter servers assert in their own tests, computed by policy and optimizer together:
// a server with one variable and no network.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "optim/apply.h"
#include "optim/optimizer.h"
#include "ps/policy/policy.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::Pointwise;

class TinyServer {
 public:
  TinyServer(const PolicyConfig& policy, const optim::OptimizerConfig& optimizer, std::vector<float> values)
      : policy_(MakePolicy(policy).value()),
        optimizer_(optim::MakeOptimizer(optimizer).value()),
        values_(std::move(values)) {
    for (int worker = 0; worker < policy.expected_workers; ++worker)
      policy_->OnJoin(worker, /*incarnation=*/1);
    for (size_t s = 0; s < optimizer_->slot_names().size(); ++s) slots_.emplace_back(values_.size());
  }

  // The gradient is of the current version unless `base_version` is given. False if the push was refused.
  bool Push(int worker, std::vector<float> gradient, int64_t base_version = -1) {
    const PushKey key{worker, 1, ++steps_[worker]};
    staged_[worker] = std::move(gradient);
    bool refused = false;
    const Gradient pushed{key, base_version < 0 ? policy_->version() : base_version, /*examples=*/1};
    for (const Decision& decision : policy_->OnGradient(pushed)) {
      if (const Apply* apply = std::get_if<Apply>(&decision)) {
        Update(*apply);
      } else {
        refused = true;
      }
    }
    return !refused;
  }

  const std::vector<float>& values() const { return values_; }
  int64_t version() const { return policy_->version(); }

 private:
  void Update(const Apply& apply) {
    std::vector<optim::WeightedGradient> gradients;
    for (const Gradient& gradient : apply.contributors) {
      gradients.push_back({staged_.at(gradient.key.worker).data(), gradient.examples});
    }
    std::vector<optim::Slot> slots;
    for (std::vector<float>& slot : slots_) slots.push_back(optim::InPlace(slot.data()));
    const int64_t count = static_cast<int64_t>(values_.size());
    ASSERT_EQ(optim::ApplyMean(*optimizer_, {apply.version, optimizer_->learning_rate(apply.version - 1)},
                               gradients, {count, values_.data(), slots, values_.data()}),
              optim::kAllFinite);
  }

  std::unique_ptr<UpdatePolicy> policy_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<float> values_;
  std::vector<std::vector<float>> slots_;
  std::map<int, std::vector<float>> staged_;
  std::map<int, int64_t> steps_;
};

MATCHER_P(NearBy, tolerance, "") {
  return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= tolerance;
}

PolicyConfig Sync(int workers) {
  return {.mode = "sync", .expected_workers = workers};
}
PolicyConfig Async(int workers) {
  return {.mode = "async", .expected_workers = workers};
}

TEST(PublishedNumbers, TensorFlowSyncReplicas) {
  TinyServer server(Sync(2), {"SGD", {{"learning_rate", 2}}}, {0, 1});
  for (int round = 0; round < 2; ++round) {
    server.Push(0, {0.1f, 0.9f});
    server.Push(1, {0.3f, 1.1f});
    EXPECT_THAT(server.values(), Pointwise(NearBy(1e-6), round == 0 ? std::vector<double>{-0.4, -1}
                                                                    : std::vector<double>{-0.8, -3}));
  }
}

// MXNet's server adds rate 2 times the *sum*, Cairn subtracts the rate times the *mean*: the same with a rate
// of 2n and negated gradients, exactly.
TEST(PublishedNumbers, MxnetDistSync) {
  for (int n : {2, 3}) {
    TinyServer server(Sync(n), {"SGD", {{"learning_rate", 2.0 * n}}}, {1});
    for (int round = 0; round < 3; ++round) {
      for (int rank = 0; rank < n; ++rank) server.Push(rank, {-static_cast<float>(rank + 1)});
      EXPECT_THAT(server.values(), ElementsAre(1 + n * (n + 1) * (round + 1)));
    }
  }
}

TEST(PublishedNumbers, ElasticDlSync) {
  TinyServer server(Sync(2), {"SGD", {{"learning_rate", 0.1}}}, {10, 20, 30, 20, 40, 60});
  server.Push(0, {1, 2, 3, 2, 4, 6});
  server.Push(1, {0, 0, 7, 9, 9, 6});
  const std::vector<double> expected = {9.95, 19.9, 29.5, 19.45, 39.35, 59.4};
  EXPECT_THAT(server.values(), Pointwise(NearBy(4e-6), expected));  // 1 ulp at 60
  EXPECT_EQ(server.version(), 1);
  EXPECT_FALSE(server.Push(0, {1, 1, 1, 1, 1, 1}, /*base_version=*/0)) << "reported to the worker";
  EXPECT_THAT(server.values(), Pointwise(NearBy(4e-6), expected));
  EXPECT_EQ(server.version(), 1);
}

TEST(PublishedNumbers, ElasticDlAsyncAppliesEachPushAtOnce) {
  TinyServer server(Async(2), {"SGD", {{"learning_rate", 0.1}}}, {10, 20, 30});
  EXPECT_TRUE(server.Push(0, {1, 2, 3}, /*base_version=*/0));
  EXPECT_THAT(server.values(), Pointwise(NearBy(2e-6), std::vector<double>{9.9, 19.8, 29.7}));
  EXPECT_TRUE(server.Push(1, {0, 0, 7}, /*base_version=*/0));
  EXPECT_THAT(server.values(), Pointwise(NearBy(2e-6), std::vector<double>{9.9, 19.8, 29.0}));
  EXPECT_EQ(server.version(), 2);
}

const optim::OptimizerConfig kAdam{"Adam", {{"learning_rate", 0.1}, {"epsilon", 1e-8}}};

TEST(PublishedNumbers, AdamTakesOneStepOnTheMeanOfASyncRound) {
  TinyServer server(Sync(2), kAdam, {1});
  server.Push(0, {0.1f});
  server.Push(1, {0.3f});
  EXPECT_NEAR(server.values()[0], 0.9000001581, 1e-7);
}

TEST(PublishedNumbers, AsyncAdamEqualsTheSerialOrderOfItsPushes) {
  TinyServer ascending(Async(2), kAdam, {1});
  ascending.Push(0, {0.1f});
  ascending.Push(1, {0.3f}, /*base_version=*/0);
  EXPECT_NEAR(ascending.values()[0], 0.8082222961, 1e-6);
  TinyServer descending(Async(2), kAdam, {1});
  descending.Push(1, {0.3f});
  descending.Push(0, {0.1f}, /*base_version=*/0);
  EXPECT_NEAR(descending.values()[0], 0.8128937975, 1e-6);
}

// With gradients of 2^w, the mean identifies the contributors: the same set in every variable.
TEST(PublishedNumbers, PowersOfTwoDecodeTheSameContributorsInEveryVariable) {
  PolicyConfig config = Sync(5);
  config.replicas_to_aggregate = 3;
  TinyServer server(config, {"SGD", {{"learning_rate", 3}}}, {0, 0});  // mean times 3: the sum
  server.Push(4, {16, 16});
  server.Push(0, {1, 1});
  server.Push(3, {8, 8});
  EXPECT_FALSE(server.Push(1, {2, 2}, /*base_version=*/0));
  EXPECT_THAT(server.values(), Pointwise(NearBy(1e-5), std::vector<double>{-25, -25}));  // 25 / 3 is rounded
}

}  // namespace
}  // namespace cairn::ps
