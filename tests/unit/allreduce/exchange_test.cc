#include <cmath>
#include <limits>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/allreduce/workers.h"

namespace cairn::allreduce {
namespace {

using testing::HasSubstr;

TEST(RingExchange, AllWorkersEndWithTheValuesOfTheOptimizer) {
  for (const int count : {1, 2, 4}) {
    SCOPED_TRACE(count);
    Workers workers(count, /*final_version=*/4);
    InitialiseChief(workers);
    workers.Each([&](int worker) { EXPECT_TRUE(Train(workers[worker], worker).ok()); });
    for (int worker = 0; worker < count; ++worker) {
      EXPECT_THAT(workers[worker].steps().parameters(),
                  testing::Pointwise(testing::FloatEq(), Expected(count, 4)));
      EXPECT_EQ(workers[worker].steps().version(), 4);
      EXPECT_EQ(workers[worker].control().ServerCounters()->examples(), 4 * 4 * count);
    }
  }
}

TEST(RingExchange, TheDataChannelGivesTheSameValues) {
  for (const auto transport : {net::Transport::kShm, net::Transport::kUnix, net::Transport::kTcp}) {
    SCOPED_TRACE(net::InWords(transport));
    Workers workers(3, /*final_version=*/4, "SGD", {{"learning_rate", 0.5}, {"momentum", 0.5}}, transport);
    InitialiseChief(workers);
    workers.Each([&](int worker) { EXPECT_TRUE(Train(workers[worker], worker).ok()); });
    EXPECT_THAT(workers.said(), testing::ElementsAre(net::InWords(transport)));
    for (int worker = 0; worker < 3; ++worker) {
      EXPECT_THAT(workers[worker].steps().parameters(),
                  testing::Pointwise(testing::FloatEq(), Expected(3, 4)));
    }
  }
}

// All workers make three steps. Then `lost` is replaced by a new process without values, and all train to the
// end, step 6.
void LoseAndTrain(Workers& workers, int lost) {
  workers.Each([&](int worker) {
    ASSERT_TRUE(workers[worker].Join().ok());
    for (int step = 0; step < 3; ++step) ASSERT_TRUE(Step(workers[worker], worker).ok());
  });
  workers.Each([&](int worker) {
    if (worker == lost) {
      workers.Kill(lost);
      workers.Start(lost, workers.job());
    } else {
      const absl::Status status = Step(workers[worker], worker);
      EXPECT_TRUE(absl::IsAborted(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("worker/", lost, " at host", lost, ":1")));
    }
    EXPECT_TRUE(Train(workers[worker], worker).ok());
  });
  for (int worker = 0; worker < workers.count(); ++worker) {
    EXPECT_THAT(workers[worker].steps().parameters(),
                testing::Pointwise(testing::FloatEq(), Expected(workers.count(), 6)));
  }
}

TEST(RingExchange, ALostWorkerReturnsOverTheSocketsOfThisHost) {
  Workers workers(3, /*final_version=*/6, "SGD", {{"learning_rate", 0.5}, {"momentum", 0.5}},
                  net::Transport::kShm);
  InitialiseChief(workers);
  LoseAndTrain(workers, 1);
}

TEST(RingExchange, NormsAreThoseOfTheWholeMean) {
  Workers workers(3, 3, "SGD", {{"learning_rate", 1}, {"global_clipnorm", 0.5}});
  InitialiseChief(workers);
  workers.Each([&](int worker) { EXPECT_TRUE(Train(workers[worker], worker).ok()); });
  double moved = 0;
  for (size_t i = 0; i < kSize; ++i) {
    const double change = workers[0].steps().parameters()[i] - First()[i];
    moved += change * change;
    for (int worker = 1; worker < 3; ++worker)
      EXPECT_EQ(workers[worker].steps().parameters()[i], workers[0].steps().parameters()[i]);
  }
  EXPECT_NEAR(std::sqrt(moved), 1.5, 0.05);  // three steps of length 0.5, nearly one way
}

TEST(RingExchange, ALostWorkerGetsTheValuesOfTheOthersAndNoStepIsRepeated) {
  Workers workers(3, /*final_version=*/6);
  InitialiseChief(workers);
  LoseAndTrain(workers, 1);
  for (int worker = 0; worker < 3; ++worker)
    EXPECT_EQ(workers[worker].control().ServerCounters()->examples(), 6 * 3 * 4);
}

TEST(RingExchange, ASenderThatEndsWhileItsMemoryIsReadIsLost) {
  Workers workers(3, /*final_version=*/6);
  InitialiseChief(workers);
  workers.LoseSenderTo(1);
  workers.Each([&](int worker) { EXPECT_EQ(Train(workers[worker], worker), absl::OkStatus()); });
  for (int worker = 0; worker < 3; ++worker)
    EXPECT_THAT(workers[worker].steps().parameters(), testing::Pointwise(testing::FloatEq(), Expected(3, 6)));
}

TEST(RingExchange, ALostChiefContinuesWithTheValuesOfTheOthers) {
  Workers workers(2, /*final_version=*/4);
  InitialiseChief(workers);
  workers.Each([&](int worker) {
    ASSERT_TRUE(workers[worker].Join().ok());
    for (int step = 0; step < 2; ++step) ASSERT_TRUE(Step(workers[worker], worker).ok());
  });
  workers.Kill(0);
  workers.Start(0, workers.job());
  InitialiseChief(workers);
  workers.Each([&](int worker) { EXPECT_TRUE(Train(workers[worker], worker).ok()); });
  for (int worker = 0; worker < 2; ++worker) {
    EXPECT_THAT(workers[worker].steps().parameters(), testing::Pointwise(testing::FloatEq(), Expected(2, 4)));
  }
}

TEST(RingExchange, TheChiefEndsTrainingForAll) {
  Workers workers(3, /*final_version=*/100);
  InitialiseChief(workers);
  workers.Each([&](int worker) {
    ASSERT_TRUE(workers[worker].Join().ok());
    ASSERT_TRUE(Step(workers[worker], worker).ok());
    if (worker == 0) {
      EXPECT_TRUE(workers[0].control().EndTraining().ok());
    } else {
      EXPECT_TRUE(Step(workers[worker], worker).ok());
    }
    EXPECT_TRUE(workers[worker].steps().finished());
    EXPECT_TRUE((worker == 0 ? workers[worker].control().Finish() : workers[worker].AwaitEnd()).ok());
  });
  for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(workers[worker].steps().version(), 1);
}

TEST(RingExchange, AFailedWorkerEndsAllWorkers) {
  Workers workers(3, /*final_version=*/100);
  InitialiseChief(workers);
  workers.Each([&](int worker) {
    if (worker == 2) {
      ASSERT_TRUE(workers[2].Join().ok());
      workers[2].Leave(v1::LEAVE_REASON_FAILED, "the loss is nan");
      return;
    }
    const absl::Status status = Train(workers[worker], worker);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kFailure) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("worker/2 at host2:1 failed: the loss is nan"));
    workers[worker].Leave(v1::LEAVE_REASON_FAILED, "");
  });
}

TEST(RingExchange, AllWorkersNameAMeanThatIsNotFinite) {
  Workers workers(2, /*final_version=*/100);
  InitialiseChief(workers);
  workers.Each([&](int worker) {
    ASSERT_TRUE(workers[worker].Join().ok());
    std::vector<float> gradient(kSize, worker == 1 ? INFINITY : 0.0f);
    client::Step& step = workers[worker].steps().BeginStep(gradient, 1, 0);
    step.Announce(0), step.Announce(1);
    const absl::Status status = step.Finish().status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("the gradient of 'w' is not finite in the update to version 1"));
  });
}

TEST(RingExchange, AnotherJobIsRefusedWithTheDifferences) {
  Workers workers(2, /*final_version=*/4);
  v1::Job other = workers.job();
  other.set_batch_size(7);
  workers.Kill(1);
  workers.Start(1, other);
  InitialiseChief(workers);
  const absl::Status status = workers[0].Join();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker/1 at host1:1: it trains another job than the "
                                                       "caller: batch size: 7 here, 0 with the caller"));
}

TEST(RingExchange, AnInvalidStateIsRefused) {
  struct NoStream final : RingStream {
    void Send(const v1::RingHeader&, net::FloatSpans, const std::shared_ptr<const void>&) override {}
    void End(const absl::Status&) override {}
  };
  struct Case {
    int worker;
    int64_t version;
    float learning_rate;
    std::string said;
  };
  const Case cases[] = {{2, 0, 1, "invalid state of worker 2 of 2"},
                        {1, 0, 1, "invalid state of worker 1 of 2"},
                        {0, -1, 1, "at version -1, offset 0, final version 4"},
                        {0, std::numeric_limits<int64_t>::max(), 1,
                         "at version 9223372036854775807, offset 0, final version 4"},
                        {0, 4, NAN, "invalid learning rate nan"},
                        {0, 4, -1, "invalid learning rate -1"}};
  for (const Case& row : cases) {
    SCOPED_TRACE(row.said);
    Workers workers(2, /*final_version=*/4);
    const std::shared_ptr<RingHandler> handler = workers[1].host().OnStream(std::make_shared<NoStream>());
    v1::RingHeader header;
    header.mutable_hello()->set_worker(0);
    header.mutable_hello()->set_ring_epoch(1);
    ASSERT_TRUE(handler->OnFrame(header, {}).ok());
    header.mutable_state()->set_worker(row.worker);
    header.mutable_state()->mutable_progress()->set_version(row.version);
    header.mutable_state()->mutable_progress()->set_learning_rate(row.learning_rate);
    const absl::Status status = handler->OnFrame(header, {});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.said));
    handler->OnClosed(status);
  }
}

TEST(RingExchange, AnUnknownOptimizerIsRefusedAtCreation) {
  v1::Job job;
  job.mutable_optimizer()->set_name("nonsense");
  const auto created =
      RingExchange::Create({.task = "worker/0", .names = {"worker/0"}, .job = job, .variables = {}}, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(created.status())) << created.status();
}

TEST(RingExchange, ASnapshotHasTheVersionAtWhichItWasTaken) {
  Workers workers(1, /*final_version=*/4);
  InitialiseChief(workers);
  ASSERT_TRUE(workers[0].Join().ok());
  ASSERT_TRUE(Step(workers[0], 0).ok());
  const auto taken = workers[0].control().TakeSnapshot({});
  ASSERT_TRUE(taken.ok());
  const std::vector<float> values(workers[0].steps().parameters().begin(),
                                  workers[0].steps().parameters().end());
  ASSERT_TRUE(Step(workers[0], 0).ok());
  const auto snapshot = taken->read({std::chrono::seconds(1)}, nullptr);
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->progress.version(), 1);
  EXPECT_EQ(snapshot->job.run_id(), "run");
  EXPECT_THAT(snapshot->slots, testing::ElementsAre("momentum"));
  ASSERT_EQ(snapshot->servers.size(), 1u);
  EXPECT_THAT(snapshot->servers[0].state.span().subspan(0, kSize), testing::ElementsAreArray(values));
}

}  // namespace
}  // namespace cairn::allreduce
