// Streams that break at a chosen moment of a step: the push is sent again and counts once, and values stay
// consistent.
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "common/core/random.h"
#include "common/net/wire/update_chunk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/gate.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::Each;
using testing::ElementsAre;

// A tap that applies `fate` to the first frame for which `moment` holds.
template <typename Header>
std::function<Fate(const Header&)> Once(Fate fate, std::function<bool(const Header&)> moment) {
  const auto done = std::make_shared<std::atomic<bool>>(false);
  return
      [=](const Header& header) { return moment(header) && !done->exchange(true) ? fate : Fate::kDeliver; };
}

bool IsEnd(const v1::ClientHeader& header) {
  return header.has_end();
}
bool IsChunk(const v1::ServerHeader& header) {
  return header.has_chunk();
}
bool IsDone(const v1::ServerHeader& header) {
  return header.has_done();
}

class BrokenStream : public testing::Test {
 protected:
  BrokenStream() : cluster_({.servers = 2}), toy_(2, {{"a", {1}, {0}}, {"b", {1}, {0}}}) {
    workers_ = StartAll(cluster_, toy_);
  }

  // Runs one round in which worker 0's stream to ps/1 breaks, and another one. `duplicate`: whether the
  // answer is that to a repeated push; nullopt: both are possible, because the answer may be faster than the
  // break.
  void ExpectTwoWholeRounds(std::optional<bool> duplicate) {
    const auto results = PushAll(workers_, {{1, 1}, {3, 3}});
    for (const auto& result : results) {
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
    }
    if (duplicate.has_value()) {
      EXPECT_EQ(results[0]->duplicate, *duplicate);
    }
    EXPECT_THAT(workers_[0]->Values(), Each(-2));
    EXPECT_EQ(workers_[0]->client().steps().version(), 1);
    PushAll(workers_, {{1, 1}, {3, 3}});
    EXPECT_THAT(workers_[0]->Values(), Each(-4));
    EXPECT_EQ(workers_[0]->client().control().ServerCounters()->accepted(), 4);
  }

  Link& link() { return cluster_.link("worker/0", 1); }

  InProcessCluster cluster_;
  ToyJob toy_;
  ToyWorkers workers_;
};

TEST_F(BrokenStream, BeforeThePushIsComplete) {
  link().TapClientFrames(Once<v1::ClientHeader>(Fate::kBreakBefore, IsEnd));
  ExpectTwoWholeRounds(/*duplicate=*/false);
}

TEST_F(BrokenStream, AfterThePushIsComplete) {
  link().TapClientFrames(Once<v1::ClientHeader>(Fate::kBreakAfter, IsEnd));
  ExpectTwoWholeRounds(/*duplicate=*/std::nullopt);
}

TEST_F(BrokenStream, BeforeTheValuesHaveArrived) {
  link().TapServerFrames(Once<v1::ServerHeader>(Fate::kBreakBefore, IsChunk));
  ExpectTwoWholeRounds(/*duplicate=*/true);
}

TEST_F(BrokenStream, BetweenTheValuesAndTheDecision) {
  link().TapServerFrames(Once<v1::ServerHeader>(Fate::kBreakBefore, IsDone));
  ExpectTwoWholeRounds(/*duplicate=*/true);
}

TEST_F(BrokenStream, BetweenTwoSteps) {
  ExpectTwoWholeRounds(/*duplicate=*/false);
  link().Break();
  PushAll(workers_, {{1, 1}, {3, 3}});
  EXPECT_THAT(workers_[0]->Values(), Each(-6));
}

TEST_F(BrokenStream, TwiceInOneStep) {
  const auto count = std::make_shared<std::atomic<int>>(0);
  link().TapClientFrames([count](const v1::ClientHeader& header) {
    return IsEnd(header) && ++*count <= 2 ? Fate::kBreakBefore : Fate::kDeliver;
  });
  ExpectTwoWholeRounds(/*duplicate=*/false);
}

// The answer to a push is lost, and the read that the repeated push then needs breaks too.
TEST_F(BrokenStream, InTheReadAfterALostAnswer) {
  const auto count = std::make_shared<std::atomic<int>>(0);
  link().TapServerFrames([count](const v1::ServerHeader& header) {
    return IsChunk(header) && ++*count <= 2 ? Fate::kBreakBefore : Fate::kDeliver;
  });
  ExpectTwoWholeRounds(/*duplicate=*/true);
}

TEST_F(BrokenStream, ALostAnswerToAMarkerIsRequestedAgain) {
  cluster_.link("worker/0", 0).DropReplyTo("PlaceMarkerRequest");
  EXPECT_EQ(workers_[0]->client().steps().Pull(), absl::OkStatus());
}

TEST(BrokenJoin, ALostAnswerIsRequestedAgain) {
  InProcessCluster cluster({.servers = 2});
  for (int server : {0, 1}) cluster.link("worker/1", server).DropReplyTo("JoinRequest");
  ToyWorkers workers = StartAll(cluster, ToyJob(2, {{"a", {1}, {0}}, {"b", {1}, {0}}}));
  for (const auto& result : PushAll(workers, {{1, 1}, {3, 3}})) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
  }
  EXPECT_THAT(workers[1]->Values(), ElementsAre(-2, -2));
}

// While one worker's stream is down, the others make five rounds. Afterwards it receives values of one
// version, and the answer that its push was counted.
TEST(BrokenStreamWithBackups, AWorkerCatchesUpWithMissedRounds) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(3, {{"a", {1}, {0}}, {"b", {1}, {0}}});
  toy.job.set_replicas_to_aggregate(2);
  ToyWorkers workers = StartAll(cluster, toy);
  Link& link = cluster.link("worker/0", 1);
  Gate down;
  link.TapServerFrames(Once<v1::ServerHeader>(Fate::kBreakBefore, [&](const v1::ServerHeader& header) {
    if (!IsChunk(header)) return false;
    link.SetReachable(false);
    down.Open();
    return true;
  }));
  Thread others("others", [&] {
    EXPECT_TRUE(workers[1]->Push(std::vector<float>{-1, -1}).ok());  // in a round with worker 0
    EXPECT_TRUE(down.Wait());
    EXPECT_EQ(workers[2]->client().steps().Pull(), absl::OkStatus());
    for (int round = 2; round <= 6; ++round) {
      InParallel(2, [&](int w) {
        EXPECT_EQ(workers[static_cast<size_t>(1 + w)]->Push(std::vector<float>{-1, -1})->outcome,
                  v1::OUTCOME_ACCEPTED);
      });
    }
    link.SetReachable(true);
  });
  const auto result = workers[0]->Push(std::vector<float>{-1, -1});
  others.Join();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_TRUE(result->duplicate);
  EXPECT_EQ(workers[0]->client().steps().version(), 6);
  EXPECT_THAT(workers[0]->Values(), ElementsAre(6, 6));
}

// Breaks random streams at random times, including followers' links.
void BreakAnythingWhile(InProcessCluster& cluster, int num_workers, const std::function<void()>& body,
                        std::chrono::milliseconds pause = std::chrono::milliseconds(5)) {
  std::atomic<bool> stop{false};
  Thread breaker("breaker", [&] {
    Random random(5, uint64_t{0});
    while (!stop) {
      const int server = static_cast<int>(random.NextBelow(static_cast<uint32_t>(cluster.num_servers())));
      const int worker = static_cast<int>(random.NextBelow(static_cast<uint32_t>(num_workers) + 1));
      if (worker < num_workers) {
        cluster.link(TaskName(worker), server).Break();
      } else if (server > 0) {
        cluster.BreakFollower(server);
      }
      std::this_thread::sleep_for(pause);
    }
  });
  body();
  stop = true;
}

TEST(BrokenStreams, DoNotChangeSynchronousValues) {
  constexpr int kWorkers = 3, kRounds = 40;
  InProcessCluster cluster({.servers = 3, .longest_delay = std::chrono::microseconds(300)});
  ToyWorkers workers =
      StartAll(cluster, ToyJob(kWorkers, {{"a", {1}, {0}}, {"b", {1}, {0}}, {"c", {1}, {0}}}));
  BreakAnythingWhile(cluster, kWorkers, [&] {
    for (int round = 1; round <= kRounds; ++round) {
      for (const auto& result : PushAll(workers, {{3, 3, 3}, {6, 6, 6}, {12, 12, 12}})) {
        ASSERT_TRUE(result.ok()) << result.status();
        ASSERT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
      }
      for (auto& worker : workers) ASSERT_THAT(worker->Values(), Each(-7 * round));
    }
  });
  EXPECT_EQ(workers[0]->client().control().ServerCounters()->accepted(), kWorkers * kRounds);
}

TEST(AwaitedValues, ArriveBeforeTheEndOfTheStepAndStayValid) {
  for (const int64_t elements : {int64_t{3}, net::kMinSpeculativeUpdate + 1}) {
    InProcessCluster cluster({.servers = 2});
    const std::vector<float> zeros(static_cast<size_t>(elements), 0);
    ToyWorkers workers = StartAll(cluster, ToyJob(2, {{"a", {elements}, zeros}, {"b", {elements}, zeros}}));
    const std::vector<float> gradient(static_cast<size_t>(2 * elements), 1);
    for (int round = 1; round <= 4; ++round) {
      for (const auto& result : PushAll(workers, {gradient, gradient}))
        ASSERT_TRUE(result.ok()) << result.status();
    }
    for (const auto& worker : workers) EXPECT_EQ(worker->steps_as_awaited(), 4);
  }
}

// Variables so large that speculative updates are made and sent while gradients arrive.
class BrokenStreamsWithSpeculation : public testing::TestWithParam<v1::Encoding> {};
INSTANTIATE_TEST_SUITE_P(In, BrokenStreamsWithSpeculation,
                         testing::Values(v1::ENCODING_FLOAT32, v1::ENCODING_BFLOAT16),
                         [](const auto& test) { return v1::Encoding_Name(test.param).substr(9); });

TEST_P(BrokenStreamsWithSpeculation, DoNotChangeValues) {
  constexpr int kWorkers = 3, kRounds = 8;
  constexpr int64_t kElements = net::kMinSpeculativeUpdate + 1;
  const std::vector<float> zeros(kElements, 0);
  InProcessCluster cluster({.servers = 2, .longest_delay = std::chrono::microseconds(300)});
  ToyJob toy(kWorkers, {{"a", {kElements}, zeros}, {"b", {kElements}, zeros}});
  toy.job.set_wire(GetParam());
  ToyWorkers workers = StartAll(cluster, toy);
  const auto all = [](float value) { return std::vector<float>(2 * kElements, value); };
  const std::vector<std::vector<float>> gradients = {all(3), all(6), all(12)};
  BreakAnythingWhile(
      cluster, kWorkers,
      [&] {
        for (int round = 1; round <= kRounds; ++round) {
          for (const auto& result : PushAll(workers, gradients)) {
            ASSERT_TRUE(result.ok()) << result.status();
            ASSERT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
          }
          for (auto& worker : workers) ASSERT_EQ(worker->Values(), all(static_cast<float>(-7 * round)));
        }
      },
      std::chrono::milliseconds(50));
  EXPECT_EQ(workers[0]->client().control().ServerCounters()->accepted(), kWorkers * kRounds);
}

TEST(BrokenStreams, AsynchronousPushesCountOnceEach) {
  constexpr int kWorkers = 3, kSteps = 40;
  InProcessCluster cluster({.servers = 2, .longest_delay = std::chrono::microseconds(300)});
  ToyJob toy(kWorkers, {{"a", {1}, {0}}, {"b", {1}, {0}}});
  toy.job.set_mode(v1::MODE_ASYNC);
  ToyWorkers workers = StartAll(cluster, toy);
  BreakAnythingWhile(cluster, kWorkers, [&] {
    InParallel(kWorkers, [&](int w) {
      const std::vector<float> gradient(2, -static_cast<float>(1 << (6 * w)));
      for (int step = 0; step < kSteps; ++step) {
        const auto result = workers[static_cast<size_t>(w)]->Push(gradient);
        ASSERT_TRUE(result.ok()) << result.status();
        ASSERT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
      }
    });
  });
  ASSERT_EQ(workers[0]->client().steps().Pull(), absl::OkStatus());
  EXPECT_THAT(workers[0]->Values(), Each(kSteps * (1 + 64 + 4096)));
}

}  // namespace
}  // namespace cairn::test
