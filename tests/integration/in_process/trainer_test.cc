// The real trainer, network and kernels against servers in this process.
#include "worker/trainer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/device.h"
#include "tests/support/effort.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/source_dir.h"
#include "worker/client/training_client.h"
#include "worker/data/digits.h"
#include "worker/job.h"

namespace cairn::worker {
namespace {

constexpr int kExamples = 1280;

// A replica that may be kept from running ahead, and counts how often it has all it needs for that.
class WatchedReplica final : public nn::Replica {
 public:
  WatchedReplica(nn::Replica& replica, bool runs_ahead, std::atomic<int>& aheads)
      : replica_(replica), runs_ahead_(runs_ahead), aheads_(aheads) {}

  absl::StatusOr<nn::BatchResult> ForwardBackward(
      absl::Span<const float> parameters, const nn::BatchView& batch, absl::Span<float> gradients,
      absl::FunctionRef<void(int variable)> on_gradient) override {
    return replica_.ForwardBackward(parameters, batch, gradients, on_gradient);
  }
  bool runs_ahead() const override { return runs_ahead_; }
  void ForwardAhead(absl::Span<const float> parameters, const nn::BatchView& batch,
                    absl::FunctionRef<bool(int variable)> await) override {
    bool all = true;
    replica_.ForwardAhead(parameters, batch, [&](int variable) { return all = all && await(variable); });
    if (all) ++aheads_;
  }
  void DropForward() override { replica_.DropForward(); }
  absl::Status Pin(absl::Span<const float> host) override { return replica_.Pin(host); }
  void Unpin() override { replica_.Unpin(); }
  absl::StatusOr<nn::BatchResult> Evaluate(absl::Span<const float> parameters,
                                           const nn::BatchView& batch) override {
    return replica_.Evaluate(parameters, batch);
  }

 private:
  nn::Replica& replica_;
  const bool runs_ahead_;
  std::atomic<int>& aheads_;
};

// The seed network on generated digits.
class TrainerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string directory = testing::TempDir() + "cairn_digits_XXXXXX";
    ASSERT_NE(mkdtemp(directory.data()), nullptr);
    ASSERT_TRUE(data::WriteSyntheticDigits(directory, kExamples, 100, 1).ok());
    directory_ = directory;
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }

  struct Result {
    Summary summary;
    std::vector<float> parameters;
    int aheads = 0;  // forward passes begun before their values had all come
  };

  // Trains with `workers` workers on `servers` servers; what the chief has at the end.
  static Result Train(const TrainOptions& options, int workers, int servers, bool runs_ahead = true) {
    const auto model = *nn::Model::FromFile(InSource("tests/support/data/keras316_mnist_cnn.json"));
    const auto data = *data::LoadTrainingData(
        {.path = directory_, .input_scale = options.input_scale, .limit = options.limit_examples});
    net::ClusterSpec spec;
    for (int i = 0; i < servers; ++i) EXPECT_TRUE(spec.Add({"ps", i}, {"127.0.0.1", 1 + i}).ok());
    for (int i = 0; i < workers; ++i) EXPECT_TRUE(spec.Add({"worker", i}, {"127.0.0.1", 100 + i}).ok());
    const auto job = *MakeJob(options, model, spec, data.train->size());

    test::InProcessCluster cluster({.servers = servers});
    Result result;
    std::atomic<int> aheads{0};
    std::vector<std::thread> threads;
    for (int worker = 0; worker < workers; ++worker) {
      threads.emplace_back([&, worker] {
        const auto device = *kernels::CreateCpuDevice(0, 1);
        const auto loss = *MakeLoss(options, model);
        const auto metrics = *MakeMetrics(options, model, loss);
        const auto alone = *nn::Replica::Create(model, loss, *device);
        WatchedReplica replica(*alone, runs_ahead, aheads);
        const auto sampler = *MakeSamplerOptions(options, data.train->size(), workers, worker);
        const std::string task = job.workers(worker);
        client::TrainingClient client(
            *client::Connection::Open(cluster.Stubs(task),
                                      {.task = task, .connect_timeout = std::chrono::seconds(60)}),
            VariablesOf(model), {.worker = worker, .task = task});
        const SteadyClock clock;
        Progress progress({.fd = null_.fd}, clock);
        Callbacks callbacks = *Callbacks::Create(options, model, metrics, options.validation);
        std::unique_ptr<Snapshots> snapshots;
        if (worker == 0) snapshots = *Snapshots::Create(options, model, job, clock);
        Trainer trainer({.options = options,
                         .model = model,
                         .metrics = metrics,
                         .data = data,
                         .sampler = sampler,
                         .job = job,
                         .device = device->name(),
                         .replica = replica,
                         .client = client,
                         .progress = worker == 0 ? &progress : nullptr,
                         .callbacks = worker == 0 ? &callbacks : nullptr,
                         .snapshots = snapshots.get(),
                         .publish = [](const Summary&) { return absl::OkStatus(); },
                         .clock = clock});
        if (worker == 0) {
          EXPECT_TRUE(trainer.Initialise().ok());
        }
        const auto summary = trainer.Run();
        EXPECT_TRUE(summary.ok()) << summary.status();
        if (worker != 0 || !summary.ok()) return;
        result.summary = *summary;
        result.parameters.assign(client.parameters().begin(), client.parameters().end());
      });
    }
    for (std::thread& thread : threads) thread.join();
    result.aheads = aheads;
    return result;
  }

  static TrainOptions SyncOptions() {
    TrainOptions options;
    options.mode = "sync";
    options.batch_size = 32;
    options.seed = 7;
    return options;
  }

 private:
  struct Null {
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    ~Null() { close(fd); }
  };
  static std::string directory_;
  static Null null_;
};

std::string TrainerTest::directory_;
TrainerTest::Null TrainerTest::null_;

// ||a - b|| / ||b||
double RelativeDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

// Rounding differs, because the batch is summed in two halves.
TEST_F(TrainerTest, TwoWorkersOfHalfABatchEqualOneOfTheWholeAfterTwentySteps) {
  TrainOptions options = SyncOptions();
  options.train_steps = 20;
  options.validation = false;
  const Result two = Train(options, 2, 1);
  options.batch_size = 64;
  const Result one = Train(options, 1, 1);
  ASSERT_EQ(two.parameters.size(), 93322u);
  EXPECT_EQ(two.summary.global_step, 20);
  const double difference = RelativeDifference(two.parameters, one.parameters);
  RecordProperty("relative_difference", std::to_string(difference));
  EXPECT_LE(difference, 1e-5);
}

TEST_F(TrainerTest, TheNumberOfServersDoesNotChangeABit) {
  TrainOptions options = SyncOptions();
  options.train_steps = 10;
  options.validation = false;
  const Result one = Train(options, 2, 1), three = Train(options, 2, 3);
  EXPECT_EQ(one.summary.parameters_sha256, three.summary.parameters_sha256);
}

// Two epochs of 4 steps, with an evaluation after each: a forward pass is run ahead of every step but an
// epoch's first.
TEST_F(TrainerTest, AForwardPassOnValuesThatStillComeDoesNotChangeABit) {
  TrainOptions options = SyncOptions();
  options.epochs = 2;
  options.limit_examples = 256;
  const Result ahead = Train(options, 2, 2), after = Train(options, 2, 2, /*runs_ahead=*/false);
  EXPECT_EQ(ahead.aheads, 2 * 2 * 3);
  EXPECT_EQ(after.aheads, 0);
  EXPECT_EQ(ahead.summary.parameters_sha256, after.summary.parameters_sha256);
  EXPECT_EQ(ahead.summary.metric("accuracy"), after.summary.metric("accuracy"));
}

TEST_F(TrainerTest, AnAsynchronousWorkerRunsAheadToo) {
  TrainOptions options = SyncOptions();
  options.mode = "async";
  options.limit_examples = 160;
  const Result ahead = Train(options, 1, 2), after = Train(options, 1, 2, /*runs_ahead=*/false);
  EXPECT_EQ(ahead.aheads, 4);
  EXPECT_EQ(ahead.summary.parameters_sha256, after.summary.parameters_sha256);
}

// 301 examples among 3 workers of 32: the last round has 13, 4 or 5 of each.
TEST_F(TrainerTest, AnUnevenTailCountsEveryExampleOnce) {
  TrainOptions options = SyncOptions();
  options.limit_examples = 301;
  const Result three = Train(options, 3, 2);
  EXPECT_EQ(three.summary.examples, 301);
  EXPECT_EQ(three.summary.global_step, 4);  // ceil(101 / 32)
  options.batch_size = 96;
  const Result one = Train(options, 1, 1);
  EXPECT_LE(RelativeDifference(three.parameters, one.parameters), 1e-5);
}

// 65 examples among 2 workers of 32: worker 1 has none in the second round.
TEST_F(TrainerTest, AWorkerWithoutExamplesTakesPartWithNoWeight) {
  TrainOptions options = SyncOptions();
  options.limit_examples = 65;
  const Result two = Train(options, 2, 1);
  EXPECT_EQ(two.summary.examples, 65);
  EXPECT_EQ(two.summary.gradients_accepted, 4);
  options.batch_size = 64;
  const Result one = Train(options, 1, 1);
  EXPECT_LE(RelativeDifference(two.parameters, one.parameters), 1e-5);
}

TEST_F(TrainerTest, AsynchronousWorkersGoThroughEveryExampleOfEveryEpoch) {
  TrainOptions options = SyncOptions();
  options.mode = "async";
  options.epochs = 2;
  options.limit_examples = 500;
  const Result result = Train(options, 3, 2);
  EXPECT_EQ(result.summary.examples, 1000);
  EXPECT_EQ(result.summary.gradients_accepted, result.summary.global_step);
  EXPECT_EQ(result.summary.epochs, 2);
}

TEST_F(TrainerTest, AsynchronousTrainingEndsAtExactlyTheStepsAsked) {
  TrainOptions options = SyncOptions();
  options.mode = "async";
  options.train_steps = 25;
  options.validation = false;
  EXPECT_EQ(Train(options, 3, 1).summary.global_step, 25);
}

// The rounds' examples are those of static sharding, divided otherwise among the workers.
TEST_F(TrainerTest, DynamicShardingTrainsAsOneWorkerWithTheBatchesOfAll) {
  TrainOptions options = SyncOptions();
  options.data_sharding = "dynamic";
  options.limit_examples = 301;
  options.epochs = 2;
  const Result three = Train(options, 3, 2);
  EXPECT_EQ(three.summary.examples, 602);
  EXPECT_EQ(three.summary.examples_missed, 0);
  EXPECT_EQ(three.summary.global_step, 2 * 4);  // ceil(301 / 96)
  EXPECT_EQ(three.summary.epochs, 2);
  options.data_sharding = "static";
  options.batch_size = 96;
  const Result one = Train(options, 1, 1);
  EXPECT_LE(RelativeDifference(three.parameters, one.parameters), 1e-5);
}

TEST_F(TrainerTest, DynamicShardingEndsAtExactlyTheStepsAsked) {
  TrainOptions options = SyncOptions();
  options.data_sharding = "dynamic";
  options.mode = "async";
  options.limit_examples = 100;
  options.train_steps = 9;
  options.validation = false;
  EXPECT_EQ(Train(options, 3, 1).summary.global_step, 9);
}

TEST_F(TrainerTest, LearnsGeneratedDigits) {
  TrainOptions options = SyncOptions();
  options.epochs = test::Effort(5, 1);
  const Result result = Train(options, 2, 1);
  EXPECT_GE(result.summary.metric("val_accuracy").value(), test::Effort(80, 20) / 100.0);
}

}  // namespace
}  // namespace cairn::worker
