// Tables of events, and the work items that each worker then has.
#include "ps/policy/queued_policy.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "tests/unit/ps/policy/events.h"

namespace cairn::ps {
namespace {

PolicyConfig Config(const std::string& mode, int workers, const WorkQueue::Config& queue) {
  PolicyConfig config = {
      .mode = mode, .expected_workers = workers, .data = DynamicAssignment{.queue = queue}};
  if (mode == "ssp") config.max_staleness = 1;
  return config;
}

// Simulates workers that push what their items say.
class QueuedWorkers {
 public:
  explicit QueuedWorkers(const PolicyConfig& config) : config_(config), policy_(MakePolicy(config).value()) {}

  UpdatePolicy& policy() { return *policy_; }
  std::string Join(int worker) { return Note(policy_->OnJoin(worker, ++incarnations_[worker])); }
  std::string Leave(int worker) { return Note(policy_->OnLeave(worker, incarnations_[worker])); }
  std::vector<WorkItem> WorkItemsOf(int worker) const { return policy_->WorkOf(worker)->work_items; }
  bool over() const { return policy_->WorkOf(0)->over; }
  // "0:4+2", or nothing.
  std::string Current(int worker) const {
    const std::vector<WorkItem> work_items = WorkItemsOf(worker);
    if (work_items.empty()) return "";
    return absl::StrCat(work_items[0].epoch, ":", work_items[0].first, "+", work_items[0].count);
  }
  std::string Push(int worker) { return PushOf(worker, WorkItemsOf(worker).front()); }
  std::string PushOf(int worker, const WorkItem& work_item) {
    const int64_t position = work_item.epoch * config_.data->queue.num_examples + work_item.first;
    return Note(policy_->OnGradient({.key = {worker, incarnations_[worker], ++steps_[worker]},
                                     .base_version = policy_->version(),
                                     .examples = work_item.count,
                                     .position = position}));
  }
  // How often each example was part of an update.
  const std::map<int64_t, int>& uses() const { return uses_; }
  const std::set<int>& deferred() const { return deferred_; }

 private:
  std::string Note(const std::vector<Decision>& decisions) {
    for (const Decision& decision : decisions) {
      if (const auto* release = std::get_if<Release>(&decision)) deferred_.erase(release->key.worker);
      const auto* apply = std::get_if<Apply>(&decision);
      if (apply == nullptr) continue;
      for (const Gradient& gradient : apply->contributors) {
        for (int64_t i = 0; i < gradient.examples; ++i) ++uses_[gradient.position + i];
        if (apply->deferred) deferred_.insert(gradient.key.worker);
      }
      last_ |= apply->last;
    }
    return ToText(decisions);
  }

  const PolicyConfig config_;
  const std::unique_ptr<UpdatePolicy> policy_;
  std::map<int, uint64_t> incarnations_;
  std::map<int, int64_t> steps_;
  std::map<int64_t, int> uses_;
  std::set<int> deferred_;

 public:
  bool last_ = false;
};

TEST(QueuedPolicy, TheOrderOfJoiningDoesNotAffectARound) {
  QueuedWorkers workers(Config("sync", 3, {.num_examples = 60, .batch_size = 10, .epochs = 1}));
  workers.Join(2);
  workers.Join(0);
  workers.Join(1);
  EXPECT_EQ(workers.Current(0), "0:0+10");
  EXPECT_EQ(workers.Current(1), "0:10+10");
  EXPECT_EQ(workers.Current(2), "0:20+10");
}

TEST(QueuedPolicy, ARoundAssignsItemsInWorkerOrder) {
  QueuedWorkers workers(Config("sync", 2, {.num_examples = 60, .batch_size = 10, .epochs = 1}));
  workers.Join(0);
  workers.Join(1);
  EXPECT_EQ(workers.Push(1), "");
  EXPECT_EQ(workers.Push(0), "v1: 0 1");
  EXPECT_EQ(workers.Current(0), "0:20+10");
  EXPECT_EQ(workers.Current(1), "0:30+10");
}

TEST(QueuedPolicy, TheUpdateThatUsesTheLastItemIsTheLast) {
  QueuedWorkers workers(Config("sync", 2, {.num_examples = 3, .batch_size = 1, .epochs = 1}));
  workers.Join(0);
  workers.Join(1);
  workers.Push(0);
  workers.Push(1);
  EXPECT_EQ(workers.Current(0), "0:2+1");
  EXPECT_EQ(workers.Current(1), "0:3+0");
  workers.Push(1);
  EXPECT_FALSE(workers.last_);
  EXPECT_EQ(workers.Push(0), "v2: 0 1");
  EXPECT_TRUE(workers.last_);
  EXPECT_TRUE(workers.over());
  EXPECT_EQ(workers.Current(0), "");
}

TEST(QueuedPolicy, ADeadWorkersItemsAreAssignedInTheNextRound) {
  QueuedWorkers workers(Config("sync", 2, {.num_examples = 40, .batch_size = 10, .epochs = 1}));
  workers.Join(0);
  workers.Join(1);
  EXPECT_EQ(workers.Push(0), "");
  EXPECT_EQ(workers.Leave(1), "v1: 0");
  EXPECT_EQ(workers.Current(0), "0:10+10");
}

TEST(QueuedPolicy, ARestartedWorkerGetsItsItemAgain) {
  QueuedWorkers workers(Config("async", 2, {.num_examples = 40, .batch_size = 10, .epochs = 1}));
  workers.Join(0);
  workers.Join(1);
  EXPECT_EQ(workers.Current(1), "0:20+10");
  workers.Join(1);
  EXPECT_EQ(workers.Current(1), "0:20+10");
}

TEST(QueuedPolicy, APushOfAnotherItemIsRefusedAndNotCounted) {
  QueuedWorkers workers(Config("async", 1, {.num_examples = 40, .batch_size = 10, .epochs = 1}));
  workers.Join(0);
  EXPECT_EQ(workers.PushOf(0, {0, 10, 10}), "refuse 0: not a member");
  EXPECT_EQ(workers.PushOf(0, {0, 0, 5}), "refuse 0: not a member");
  EXPECT_EQ(workers.Push(0), "v1: 0");
}

TEST(QueuedPolicy, APushWithoutExamplesUsesUpItsItem) {
  QueuedWorkers workers(Config("async", 1, {.num_examples = 20, .batch_size = 10, .epochs = 1}));
  workers.Join(0);
  EXPECT_EQ(workers.PushOf(0, {0, 0, 0}), "v1: 0");
  EXPECT_EQ(workers.Current(0), "0:10+10");
}

TEST(QueuedPolicy, AnIdleWorkerGetsTheItemsOfALeavingOne) {
  QueuedWorkers workers(Config("async", 2, {.num_examples = 2, .batch_size = 1, .epochs = 1}));
  workers.Join(0);
  workers.Join(1);
  EXPECT_EQ(workers.Current(1), "0:1+1") << "which worker 0 had ahead";
  workers.Push(1);
  EXPECT_EQ(workers.Current(1), "");
  EXPECT_FALSE(workers.over());
  workers.Leave(0);
  EXPECT_EQ(workers.Current(1), "0:0+1");
  EXPECT_EQ(workers.Push(1), "v2: 1");
  EXPECT_TRUE(workers.over());
}

TEST(QueuedPolicy, AssignsNothingWithTooFewWorkers) {
  PolicyConfig config = Config("sync", 1, {.num_examples = 8, .batch_size = 1, .epochs = 1});
  config.data->elastic = true;
  config.data->min_workers = 2;
  QueuedWorkers workers(config);
  workers.Join(0);
  EXPECT_EQ(workers.Current(0), "");
  workers.Join(5);
  EXPECT_EQ(workers.Current(0), "0:0+1");
  EXPECT_EQ(workers.Current(5), "0:1+1");
  EXPECT_EQ(workers.policy().WorkOf(0)->members, 2);
  workers.Leave(5);
  EXPECT_EQ(workers.Push(0), "v1: 0") << "what it had begun";
  EXPECT_EQ(workers.Current(0), "");
  workers.Join(1);
  EXPECT_EQ(workers.Current(0), "0:1+1") << "what worker 5 had";
  EXPECT_EQ(workers.Current(1), "0:2+1");
}

TEST(QueuedPolicy, AnElasticRoundIncludesNewWorkers) {
  PolicyConfig config = Config("sync", 1, {.num_examples = 8, .batch_size = 1, .epochs = 1});
  config.data->elastic = true;
  QueuedWorkers workers(config);
  workers.Join(0);
  EXPECT_EQ(workers.Push(0), "v1: 0");
  workers.Join(3);
  EXPECT_EQ(workers.Push(0), "");
  EXPECT_EQ(workers.Push(3), "v2: 0 3");
}

TEST(QueuedPolicy, AFixedNumberOfStepsEndsTheWork) {
  PolicyConfig config = Config("async", 1, {.num_examples = 2, .batch_size = 1});
  config.final_version = 3;
  QueuedWorkers workers(config);
  workers.Join(0);
  for (int step = 0; step < 3; ++step) workers.Push(0);
  EXPECT_TRUE(workers.over());
  EXPECT_EQ(workers.uses(), (std::map<int64_t, int>{{0, 1}, {1, 1}, {2, 1}}));
}

TEST(QueuedPolicy, AnEarlierEndStopsTheWork) {
  QueuedWorkers workers(Config("ssp", 1, {.num_examples = 8, .batch_size = 1, .epochs = 1}));
  workers.Join(0);
  workers.policy().OnEnd();
  EXPECT_TRUE(workers.over());
}

TEST(QueuedPolicy, AJobResumedAtItsEndIsOver) {
  PolicyConfig config = Config("sync", 1, {.num_examples = 8, .batch_size = 1, .epochs = 1});
  config.data->resumed.next = 8;
  QueuedWorkers workers(config);
  workers.Join(0);
  EXPECT_TRUE(workers.over());
}

TEST(QueuedPolicy, AnImpossibleDataPositionIsRefused) {
  PolicyConfig config = Config("sync", 1, {.num_examples = 8, .batch_size = 1, .epochs = 1});
  config.data->resumed = {.next = 8, .open = {{6, 3}}};
  EXPECT_FALSE(MakePolicy(config).ok());
  config.data->resumed = {.next = 8, .open = {{6, 1}, {5, 1}}};
  EXPECT_FALSE(MakePolicy(config).ok());
  config.data->resumed = {.next = int64_t{1} << 60, .open = {{0, int64_t{1} << 59}}};
  EXPECT_FALSE(MakePolicy(config).ok());
}

// Even if workers come and go, each example of the epochs is in one update, and the job ends.
class AnyNumberOfWorkers : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Mode, AnyNumberOfWorkers, testing::Values("sync", "async", "ssp"),
                         [](const auto& mode) { return std::string(mode.param); });

TEST_P(AnyNumberOfWorkers, UsesEachExampleOnce) {
  constexpr int kWorkers = 6;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed, "workers");
    const int64_t examples = 1 + random.NextBelow(40), epochs = 1 + random.NextBelow(3);
    PolicyConfig config = Config(
        GetParam(), 1, {.num_examples = examples, .batch_size = 1 + random.NextBelow(5), .epochs = epochs});
    config.data->elastic = true;
    config.data->min_workers = 1 + static_cast<int>(random.NextBelow(2));
    QueuedWorkers workers(config);
    std::set<int> members, pushed;  // in a round: workers that wait for its end
    workers.Join(0);
    members.insert(0);
    for (int event = 0; !workers.over(); ++event) {
      ASSERT_LT(event, 20000) << "seed " << seed;
      const int worker = static_cast<int>(random.NextBelow(kWorkers));
      const int64_t before = workers.policy().version();
      const uint32_t what = random.NextBelow(event < 300 ? 10 : 1000);
      if (what == 0 && worker != 0) {
        workers.Leave(worker);
        members.erase(worker);
        pushed.erase(worker);
      } else if (what == 1 || (members.size() < 2 && worker != 0)) {
        workers.Join(worker);
        members.insert(worker);
        pushed.erase(worker);
      } else if (members.count(worker) != 0 && pushed.count(worker) == 0 &&
                 workers.deferred().count(worker) == 0 && !workers.WorkItemsOf(worker).empty()) {
        workers.Push(worker);
        if (GetParam() == std::string("sync")) pushed.insert(worker);
      }
      if (workers.policy().version() != before) pushed.clear();
    }
    ASSERT_EQ(static_cast<int64_t>(workers.uses().size()), examples * epochs) << "seed " << seed;
    for (const auto& [example, uses] : workers.uses()) ASSERT_EQ(uses, 1) << example << ", seed " << seed;
    ASSERT_EQ(workers.policy().position()->next, examples * epochs);
    ASSERT_TRUE(workers.policy().position()->open.empty());
  }
}

}  // namespace
}  // namespace cairn::ps
