// SyncPolicy under random joins, leaves, restarts, pushes and retries, observed by a checker that knows the
// rules and not the code.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "common/core/random.h"
#include "gtest/gtest.h"
#include "ps/policy/sync_policy.h"
#include "tests/support/effort.h"

namespace cairn::ps {
namespace {

// The expected state of the simulated cluster, tracked independently: live workers, pushes and answers.
class Checker {
 public:
  explicit Checker(const PolicyConfig& config) : config_(config), version_(config.initial_version) {}

  void Joined(int worker, uint64_t incarnation) {
    heard_of_.insert(worker);
    live_[worker] = incarnation;
  }
  void Left(int worker) {
    heard_of_.insert(worker);
    live_.erase(worker);
  }
  void Pushed(const Gradient& gradient) {
    ASSERT_TRUE(unanswered_.emplace(gradient.key, gradient).second);
    ++num_pushed_;
  }

  void Check(const std::vector<Decision>& decisions) {
    for (const Decision& decision : decisions) {
      if (const Apply* apply = std::get_if<Apply>(&decision)) {
        CheckApply(*apply);
      } else {
        CheckRefuse(std::get<Refuse>(decision));
      }
    }
    // Every staged gradient is from a live worker, current, one per worker, and together they are not enough.
    std::set<int> waiting;
    for (const auto& [key, gradient] : unanswered_) {
      ASSERT_EQ(live_.count(key.worker), 1u);
      ASSERT_EQ(live_.at(key.worker), key.incarnation);
      ASSERT_EQ(gradient.base_version, version_);
      ASSERT_TRUE(waiting.insert(key.worker).second);
    }
    if (Started() && !live_.empty()) {
      ASSERT_LT(unanswered_.size(), RoundSize()) << "a round that could close stays open";
    }
  }

  int64_t version() const { return version_; }
  int64_t num_unanswered() const { return static_cast<int64_t>(unanswered_.size()); }
  int64_t num_pushed() const { return num_pushed_; }
  int64_t num_applied() const { return num_applied_; }
  int64_t num_refused() const { return num_refused_; }
  bool IsLive(int worker) const { return live_.count(worker) != 0; }
  uint64_t IncarnationOf(int worker) const { return live_.at(worker); }

 private:
  bool Started() const { return static_cast<int>(heard_of_.size()) >= config_.expected_workers; }
  size_t RoundSize() const {
    if (config_.replicas_to_aggregate == 0) return live_.size();
    return std::min(static_cast<size_t>(config_.replicas_to_aggregate), live_.size());
  }

  void CheckApply(const Apply& apply) {
    ASSERT_TRUE(Started());
    ASSERT_EQ(apply.version, version_ + 1);
    if (config_.final_version.has_value()) {
      ASSERT_LE(apply.version, *config_.final_version);
    }
    ASSERT_EQ(apply.contributors.size(), RoundSize());
    int previous = -1;
    for (const Gradient& gradient : apply.contributors) {
      ASSERT_GT(gradient.key.worker, previous) << "in worker order, without repeats";
      previous = gradient.key.worker;
      ASSERT_EQ(gradient.base_version, version_);
      ASSERT_TRUE(IsLive(gradient.key.worker));
      ASSERT_EQ(IncarnationOf(gradient.key.worker), gradient.key.incarnation);
      const auto pushed = unanswered_.find(gradient.key);
      ASSERT_NE(pushed, unanswered_.end()) << "never pushed, or answered before";
      ASSERT_EQ(pushed->second, gradient);
      unanswered_.erase(pushed);
      ++num_applied_;
    }
    ++version_;
  }

  void CheckRefuse(const Refuse& refuse) {
    const auto pushed = unanswered_.find(refuse.key);
    ASSERT_NE(pushed, unanswered_.end()) << "never pushed, or answered before";
    const bool current =
        IsLive(refuse.key.worker) && IncarnationOf(refuse.key.worker) == refuse.key.incarnation;
    switch (refuse.reason) {
      case Refuse::Reason::kStale:
        EXPECT_GT(refuse.staleness, 0);
        EXPECT_EQ(refuse.staleness, version_ - pushed->second.base_version);
        break;
      case Refuse::Reason::kAhead:
        EXPECT_GT(pushed->second.base_version, version_);
        break;
      case Refuse::Reason::kNotAMember:
        EXPECT_FALSE(IsLive(refuse.key.worker));
        break;
      case Refuse::Reason::kOldIncarnation:
        EXPECT_FALSE(current);
        break;
      case Refuse::Reason::kSecondInRound:
        EXPECT_EQ(pushed->second.base_version, version_);
        break;
      case Refuse::Reason::kFinished:
        EXPECT_EQ(version_, config_.final_version);
        break;
    }
    unanswered_.erase(pushed);
    ++num_refused_;
  }

  const PolicyConfig config_;
  int64_t version_;
  std::set<int> heard_of_;
  std::map<int, uint64_t> live_;  // worker to incarnation
  std::map<PushKey, Gradient> unanswered_;
  int64_t num_pushed_ = 0;
  int64_t num_applied_ = 0;
  int64_t num_refused_ = 0;
};

// One random life of a job: 400 events.
class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed, "simulation"), config_(RandomConfig()) {}

  void Run() {
    for (int event = 0; event < 400 && !testing::Test::HasFatalFailure(); ++event) {
      const int worker = static_cast<int>(random_.NextBelow(static_cast<uint32_t>(config_.expected_workers)));
      const uint32_t dice = random_.NextBelow(100);
      if (!checker_.IsLive(worker) || dice < 3) {
        JoinAnew(worker);
      } else if (dice < 6) {
        Leave(worker);
      } else if (dice < 10 && !pushed_.empty()) {
        Retry();
      } else {
        PushFrom(worker, dice);
      }
    }
    for (int worker = 0; worker < config_.expected_workers; ++worker) {
      if (checker_.IsLive(worker)) Leave(worker);
    }
  }

  void ExpectEveryPushAnsweredOnce() {
    EXPECT_EQ(checker_.num_unanswered(), 0);
    EXPECT_EQ(checker_.num_applied() + checker_.num_refused(), checker_.num_pushed());
    EXPECT_EQ(policy_.version(), checker_.version());
    const UpdateCounters& counters = policy_.counters();
    EXPECT_EQ(counters.accepted, checker_.num_applied());
    EXPECT_EQ(counters.stale + counters.refused_other, checker_.num_refused());
    EXPECT_EQ(counters.duplicate, num_retries_);
    EXPECT_EQ(counters.staleness_max, 0);
  }

  int64_t updates() const { return policy_.version() - config_.initial_version; }

 private:
  PolicyConfig RandomConfig() {
    PolicyConfig config{.mode = "sync"};
    config.expected_workers = 1 + static_cast<int>(random_.NextBelow(6));
    config.replicas_to_aggregate =
        static_cast<int>(random_.NextBelow(static_cast<uint32_t>(config.expected_workers) + 2));
    config.initial_version = random_.NextBelow(3) * 10;
    if (random_.NextBelow(3) == 0) config.final_version = config.initial_version + 20;
    return config;
  }

  void JoinAnew(int worker) {
    const uint64_t incarnation = ++last_incarnation_;
    const std::vector<Decision> decisions = policy_.OnJoin(worker, incarnation);
    checker_.Joined(worker, incarnation);
    steps_[worker] = 0;
    checker_.Check(decisions);
  }

  void Leave(int worker) {
    const std::vector<Decision> decisions = policy_.OnLeave(worker, checker_.IncarnationOf(worker));
    checker_.Left(worker);
    checker_.Check(decisions);
  }

  // Mostly valid; sometimes too old, ahead, from an old incarnation or from a worker that has left.
  void PushFrom(int worker, uint32_t dice) {
    Gradient gradient;
    gradient.key = {worker, checker_.IncarnationOf(worker), ++steps_[worker]};
    gradient.base_version = checker_.version();
    gradient.examples = 1 + random_.NextBelow(64);
    if (dice < 20 && gradient.base_version > 0) gradient.base_version -= 1 + random_.NextBelow(2);
    if (dice == 20) gradient.base_version += 5;
    if (dice == 21) gradient.key.incarnation += 1000000;
    checker_.Pushed(gradient);
    pushed_.push_back(gradient);
    checker_.Check(policy_.OnGradient(gradient));
  }

  // Repeats a push of a current incarnation, answered or not.
  void Retry() {
    const Gradient& again = pushed_[random_.NextBelow(static_cast<uint32_t>(pushed_.size()))];
    if (!checker_.IsLive(again.key.worker)) return;
    if (checker_.IncarnationOf(again.key.worker) != again.key.incarnation) return;
    ++num_retries_;
    EXPECT_TRUE(policy_.OnGradient(again).empty());
  }

  Random random_;
  const PolicyConfig config_;
  SyncPolicy policy_{config_};
  Checker checker_{config_};
  std::map<int, int64_t> steps_;  // of the worker's current incarnation
  std::vector<Gradient> pushed_;
  uint64_t last_incarnation_ = 0;
  int64_t num_retries_ = 0;
};

TEST(SyncPolicySimulation, KeepsItsRulesUnderThousandsOfRandomJobs) {
  int64_t updates = 0;
  constexpr auto kJobs = static_cast<uint64_t>(test::Effort(3000, 500));
  for (uint64_t seed = 0; seed < kJobs; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed);
    simulation.Run();
    simulation.ExpectEveryPushAnsweredOnce();
    if (HasFailure()) return;  // the first failing seed is enough
    updates += simulation.updates();
  }
  EXPECT_GT(updates, 10 * static_cast<int64_t>(kJobs))
      << "the jobs must get somewhere for their checks to mean something";
}

}  // namespace
}  // namespace cairn::ps
