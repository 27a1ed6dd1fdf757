// The real trainer, network and kernels against servers in this process.
#include "worker/training/trainer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/training/training_client.h"
#include "common/core/status.h"
#include "data/array/synthetic_mnist.h"
#include "kernels/cpu/device.h"
#include "tests/support/effort.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/source_dir.h"
#include "worker/options/job.h"
#include "worker/training/chief.h"
#include "worker/training/snapshots.h"

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;

constexpr int kExamples = 1280;

// A replica that can be kept from running its forward pass ahead, and counts how often it could, and the
// batches that it evaluates.
class WatchedReplica final : public nn::Replica {
 public:
  // `parameters`: the model's.
  WatchedReplica(nn::Replica& replica, int64_t parameters, bool starts_early, std::atomic<int>& aheads)
      : replica_(replica),
        device_gradients_(static_cast<size_t>(parameters)),
        starts_early_(starts_early),
        aheads_(aheads) {}

  absl::StatusOr<nn::BatchResult> ForwardBackward(
      absl::Span<const float> parameters, const nn::BatchView& batch, absl::Span<float> gradients,
      absl::FunctionRef<void(int variable)> on_gradient) override {
    trained_.push_back(batch.seed);
    return replica_.ForwardBackward(parameters, batch, gradients, on_gradient);
  }
  bool starts_early() const override { return starts_early_; }
  void StartForward(absl::Span<const float> parameters, const nn::BatchView& batch,
                    absl::FunctionRef<bool(int variable)> await) override {
    bool all = true;
    replica_.StartForward(parameters, batch, [&](int variable) { return all = all && await(variable); });
    if (all) ++aheads_;
  }
  void DropForward() override { replica_.DropForward(); }
  absl::Span<float> device_gradients() override { return absl::MakeSpan(device_gradients_); }
  absl::Status Pin(absl::Span<const float> host) override { return replica_.Pin(host); }
  bool pins() const override { return replica_.pins(); }
  void Unpin() override { replica_.Unpin(); }
  int evaluations() const { return evaluations_; }
  // The seeds of the batches, which identify them.
  const std::vector<uint64_t>& trained() const { return trained_; }
  absl::StatusOr<nn::BatchResult> Evaluate(absl::Span<const float> parameters,
                                           const nn::BatchView& batch) override {
    ++evaluations_;
    return replica_.Evaluate(parameters, batch);
  }

 private:
  nn::Replica& replica_;
  std::vector<float> device_gradients_;  // host memory, as a CPU device's is
  const bool starts_early_;
  std::atomic<int>& aheads_;
  int evaluations_ = 0;
  std::vector<uint64_t> trained_;
};

// Records the seeds of the batches whose rows it is to fetch.
class RecordingFetcher final : public NextBatchFetcher {
 public:
  explicit RecordingFetcher(int reads_ahead) : reads_ahead_(reads_ahead) {}
  absl::Status Fetch(const nn::BatchView& next) override {
    EXPECT_EQ(reads_ahead_, 0);
    fetched.push_back(next.seed);
    return absl::OkStatus();
  }
  int reads_ahead() const override { return reads_ahead_; }
  absl::Status Read(const nn::BatchView& batch) override {
    EXPECT_GT(reads_ahead_, 0);
    fetched.push_back(batch.seed);
    return absl::OkStatus();
  }
  void Forget() override { ++forgotten; }

  std::vector<uint64_t> fetched;
  int forgotten = 0;

 private:
  const int reads_ahead_;
};

// Claims to add up gradients in device memory, and does so through servers: it copies them from the device to
// the buffer of the mean, and sends them from there.
class StepsOnDevice final : public client::StepExchange, public client::Step {
 public:
  StepsOnDevice(client::StepExchange& servers, const nn::Model& model) : servers_(servers), model_(model) {}

  bool adds_up_on_device() const override { return true; }
  client::Step& BeginStep(absl::Span<const float>, int64_t, int64_t) override {
    ADD_FAILURE() << "a step of gradients on the host";
    return *this;
  }
  client::Step& BeginStepOnDevice(absl::Span<float> gradients, absl::Span<float> mean,
                                  int64_t examples) override {
    gradients_ = gradients;
    mean_ = mean;
    step_ = &servers_.BeginStep(mean, examples, servers_.version());
    return *this;
  }
  void Announce(int variable) override {
    const nn::ModelVariable& of = model_.variables()[static_cast<size_t>(variable)];
    const auto begin = static_cast<size_t>(of.offset), count = static_cast<size_t>(of.shape.num_elements());
    const absl::Span<const float> from = gradients_.subspan(begin, count);
    std::copy(from.begin(), from.end(), mean_.subspan(begin, count).begin());
    step_->Announce(variable);
  }
  absl::StatusOr<client::StepResult> Finish() override {
    CAIRN_ASSIGN_OR_RETURN(client::StepResult result, step_->Finish());
    std::fill(gradients_.begin(), gradients_.end(), std::nanf(""));  // not defined after the step
    return result;
  }

  absl::Span<const float> parameters() const override { return servers_.parameters(); }
  std::array<absl::Span<const float>, 2> parameter_buffers() const override {
    return servers_.parameter_buffers();
  }
  int64_t version() const override { return servers_.version(); }
  bool finished() const override { return servers_.finished(); }
  const v1::Work& work() const override { return servers_.work(); }
  absl::Status AwaitWork() override { return servers_.AwaitWork(); }
  absl::Status Pull() override { return servers_.Pull(); }

 private:
  client::StepExchange& servers_;
  const nn::Model& model_;
  client::Step* step_ = nullptr;  // of servers_
  absl::Span<float> gradients_, mean_;
};

// Records the calls of the chief's hooks.
class RecordingHooks final : public TrainingHooks {
 public:
  RecordingHooks(TrainingHooks& chief, std::vector<std::string>& calls) : chief_(chief), calls_(calls) {}

  absl::Status OnJoined() override { return Record("OnJoined").OnJoined(); }
  absl::Status BeforeTraining() override { return Record("BeforeTraining").BeforeTraining(); }
  void OnMembers(int members) override { Record(absl::StrCat("OnMembers ", members)).OnMembers(members); }
  void OnEpochStart() override { Record("OnEpochStart").OnEpochStart(); }
  absl::Status OnEpochEnd() override { return Record("OnEpochEnd").OnEpochEnd(); }
  void OnBatch(const data::Batch& batch, const nn::BatchView& view, const nn::BatchResult& result) override {
    Record(absl::StrCat("OnBatch ", batch.epoch, "/", batch.index)).OnBatch(batch, view, result);
  }
  void OnStep() override { Record("OnStep").OnStep(); }
  absl::Status AfterTraining() override { return Record("AfterTraining").AfterTraining(); }
  absl::Status OnEnd(const absl::Status& result) override { return Record("OnEnd").OnEnd(result); }

 private:
  TrainingHooks& Record(const std::string& call) {
    calls_.push_back(call);
    return chief_;
  }

  TrainingHooks& chief_;
  std::vector<std::string>& calls_;
};

// The example network on synthetic digits.
class TrainerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string directory = testing::TempDir() + "cairn_digits_XXXXXX";
    ASSERT_NE(mkdtemp(directory.data()), nullptr);
    ASSERT_TRUE(data::WriteSyntheticMnist(directory, kExamples, 100, 1).ok());
    directory_ = directory;
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }

  struct Result {
    Summary summary;
    std::vector<float> parameters;
    int aheads = 0;                  // forward passes that began before all their values had arrived
    std::vector<std::string> calls;  // of the chief's hooks
    int evaluations = 0;             // batches that the chief evaluated
    // The chief's batches: those that were trained, and those whose rows were fetched before; how often these were
    // forgotten.
    std::vector<uint64_t> trained, fetched;
    int forgotten = 0;
  };

  // Trains with `workers` workers on `servers` servers. Returns the chief's values at the end.
  struct How {
    bool starts_early = true;
    bool adds_up_on_device = false;
    int reads_ahead = 0;  // of rows
  };
  static Result Train(const TrainOptions& options, int workers, int servers) {
    return Train(options, workers, servers, {});
  }
  static Result Train(const TrainOptions& options, int workers, int servers, const How& how) {
    const auto model = *nn::Model::FromFile(InSource("tests/support/data/keras316_mnist_cnn.json"));
    const auto data = *data::LoadTrainingData(
        {.path = directory_, .input_scale = options.data.input_scale, .limit = options.data.limit});
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
        const auto loss = *MakeObjective(options, model);
        const auto metrics = *MakeMetrics(options, model, loss);
        const auto alone = *nn::Replica::Create(model, loss, *device);
        WatchedReplica replica(*alone, model.num_parameters(), how.starts_early, aheads);
        const auto sampler = *MakeSamplerOptions(options, data.train->size(), workers, worker);
        const std::string task = job.workers(worker);
        client::TrainingClient client(
            *client::Connection::Open(cluster.Stubs(task),
                                      {.task = task, .connect_timeout = std::chrono::seconds(60)}),
            VariablesOf(model), {.worker = worker, .task = task});
        StepsOnDevice on_device(client.steps(), model);
        RecordingFetcher fetcher(how.reads_ahead);
        const SteadyClock clock;
        std::unique_ptr<Snapshots> snapshots;
        std::optional<client::TrainingLoop::Chief> chief_parts;
        if (worker == 0) {
          snapshots = *Snapshots::Create({.options = options, .model = model, .job = job, .clock = clock});
          chief_parts.emplace(client::TrainingLoop::Chief{
              .control = client.control(), .source = *snapshots, .snapshots = snapshots->saver()});
        }
        Trainer trainer(
            {.setup = {.options = options,
                       .model = model,
                       .metrics = metrics,
                       .data = data,
                       .sampler = sampler,
                       .job = job,
                       .device = device->name()},
             .replica = replica,
             .membership = client,
             .steps = how.adds_up_on_device ? static_cast<client::StepExchange&>(on_device) : client.steps(),
             .chief = chief_parts,
             .clock = clock,
             .fetcher = &fetcher});
        if (worker != 0) {
          NonChief hooks;
          const absl::Status end = trainer.Run(hooks);
          EXPECT_TRUE(end.ok()) << end;
          return;
        }
        Progress progress({.fd = null_.fd}, clock);
        Callbacks callbacks = *Callbacks::Create(options.callbacks, model, metrics, options.validation);
        Chief chief(trainer,
                    {.progress = progress, .callbacks = callbacks, .publish = [&](const Summary& summary) {
                       result.summary = summary;
                       return absl::OkStatus();
                     }});
        RecordingHooks hooks(chief, result.calls);
        EXPECT_TRUE(trainer.Initialise().ok());
        const absl::Status end = trainer.Run(hooks);
        EXPECT_TRUE(end.ok()) << end;
        result.evaluations = replica.evaluations();
        result.trained = replica.trained();
        result.fetched = fetcher.fetched;
        result.forgotten = fetcher.forgotten;
        const absl::Span<const float> parameters = client.steps().parameters();
        result.parameters.assign(parameters.begin(), parameters.end());
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
TEST_F(TrainerTest, TwoWorkersWithHalfABatchEqualOneWithTheWholeAfterTwentySteps) {
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

// The mean's norms and other statistics of a step are computed in host memory, which differs from the
// device's.
TEST_F(TrainerTest, GradientsThatStayOnTheDeviceDoNotChangeABit) {
  TrainOptions options = SyncOptions();
  options.train_steps = 10;
  const Result on_device = Train(options, 2, 2, {.starts_early = false, .adds_up_on_device = true});
  const Result on_host = Train(options, 2, 2, {.starts_early = false});
  EXPECT_EQ(on_device.summary.global_step, 10);
  EXPECT_EQ(on_device.summary.parameters_sha256, on_host.summary.parameters_sha256);
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
TEST_F(TrainerTest, AForwardPassThatRunsAheadDoesNotChangeABit) {
  TrainOptions options = SyncOptions();
  options.epochs = 2;
  options.data.limit = 256;
  const Result ahead = Train(options, 2, 2), after = Train(options, 2, 2, {.starts_early = false});
  EXPECT_EQ(ahead.aheads, 2 * 2 * 3);
  EXPECT_EQ(after.aheads, 0);
  EXPECT_EQ(ahead.summary.parameters_sha256, after.summary.parameters_sha256);
  EXPECT_EQ(ahead.summary.metric("accuracy"), after.summary.metric("accuracy"));
}

TEST_F(TrainerTest, AnAsynchronousWorkerRunsAheadToo) {
  TrainOptions options = SyncOptions();
  options.mode = "async";
  options.data.limit = 160;
  const Result ahead = Train(options, 1, 2), after = Train(options, 1, 2, {.starts_early = false});
  EXPECT_EQ(ahead.aheads, 4);
  EXPECT_EQ(ahead.summary.parameters_sha256, after.summary.parameters_sha256);
}

// Two epochs, with an evaluation after each.
TEST_F(TrainerTest, RowsOfEveryBatchButTheFirstAreFetchedBefore) {
  TrainOptions options = SyncOptions();
  options.epochs = 2;
  options.data.limit = 301;
  for (const char* const mode : {"sync", "async"}) {
    for (const char* const sharding : {"static", "dynamic"}) {
      for (const int reads_ahead : {0, 1, 3}) {
        SCOPED_TRACE(absl::StrCat(mode, ", ", sharding, ", ", reads_ahead, " ahead"));
        options.mode = mode;
        options.data_sharding = sharding;
        const Result result = Train(options, 1, 1, {.reads_ahead = reads_ahead});
        ASSERT_EQ(result.trained.size(), 20u);
        EXPECT_EQ(result.fetched, std::vector<uint64_t>(result.trained.begin() + 1, result.trained.end()));
        EXPECT_LE(result.forgotten, 2) << "when the worker joins, and before its first batch";
      }
    }
  }
}

TEST_F(TrainerTest, RowsAreFetchedForTheItemsThatAWorkerThenGets) {
  TrainOptions options = SyncOptions();
  options.epochs = 2;
  options.data_sharding = "dynamic";
  const Result result = Train(options, 2, 1);
  ASSERT_EQ(result.trained.size(), 40u);
  EXPECT_EQ(result.fetched, std::vector<uint64_t>(result.trained.begin() + 1, result.trained.end()));
}

// 301 examples among 3 workers of 32: the last round has 13, 4 or 5 of each.
TEST_F(TrainerTest, AnUnevenTailCountsEveryExampleOnce) {
  TrainOptions options = SyncOptions();
  options.data.limit = 301;
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
  options.data.limit = 65;
  const Result two = Train(options, 2, 1);
  EXPECT_EQ(two.summary.examples, 65);
  EXPECT_EQ(two.summary.gradients_accepted, 4);
  options.batch_size = 64;
  const Result one = Train(options, 1, 1);
  EXPECT_LE(RelativeDifference(two.parameters, one.parameters), 1e-5);
}

TEST_F(TrainerTest, AsynchronousWorkersUseEveryExampleOfEveryEpoch) {
  TrainOptions options = SyncOptions();
  options.mode = "async";
  options.epochs = 2;
  options.data.limit = 500;
  const Result result = Train(options, 3, 2);
  EXPECT_EQ(result.summary.examples, 1000);
  EXPECT_EQ(result.summary.gradients_accepted, result.summary.global_step);
  EXPECT_EQ(result.summary.epochs, 2);
}

TEST_F(TrainerTest, AsynchronousTrainingEndsAtExactlyTheRequestedSteps) {
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
  options.data.limit = 301;
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

TEST_F(TrainerTest, DynamicShardingEndsAtExactlyTheRequestedSteps) {
  TrainOptions options = SyncOptions();
  options.data_sharding = "dynamic";
  options.mode = "async";
  options.data.limit = 100;
  options.train_steps = 9;
  options.validation = false;
  EXPECT_EQ(Train(options, 3, 1).summary.global_step, 9);
}

// Two epochs of two batches. The chief ends the last epoch itself, after the last update of all workers.
TEST_F(TrainerTest, HooksAreCalledAroundEveryStepAndEpoch) {
  TrainOptions options = SyncOptions();
  options.data.limit = 64;
  options.epochs = 2;
  EXPECT_THAT(Train(options, 1, 1).calls, ElementsAre("OnJoined", "BeforeTraining",  //
                                                      "OnEpochEnd", "OnEpochStart",  //
                                                      "OnBatch 0/0", "OnStep",       //
                                                      "OnBatch 0/1", "OnStep",       //
                                                      "OnEpochEnd", "OnEpochStart",  //
                                                      "OnBatch 1/0", "OnStep",       //
                                                      "OnBatch 1/1", "OnStep", "AfterTraining", "OnEnd"));
}

// The 100 validation examples are one batch. The summary shows the metrics of the last epoch's end.
TEST_F(TrainerTest, AVersionIsEvaluatedOnce) {
  TrainOptions options = SyncOptions();
  options.data.limit = 64;
  options.epochs = 2;
  EXPECT_EQ(Train(options, 1, 1).evaluations, 2);
}

TEST_F(TrainerTest, HooksLearnTheMembersBeforeEveryStepWithDynamicSharding) {
  TrainOptions options = SyncOptions();
  options.data_sharding = "dynamic";
  options.data.limit = 32;
  EXPECT_THAT(Train(options, 1, 1).calls,
              ElementsAre("OnJoined", "BeforeTraining", "OnMembers 1", "OnEpochEnd", "OnEpochStart",
                          "OnBatch 0/0", "OnStep", "AfterTraining", "OnEnd"));
}

// 65 examples among 2 asynchronous workers of 32: worker 1 has no second batch.
TEST_F(TrainerTest, AStepWithoutExamplesIsNoStepOfAnAsynchronousJob) {
  TrainOptions options = SyncOptions();
  options.mode = "async";
  options.data.limit = 65;
  const Result result = Train(options, 2, 1);
  EXPECT_EQ(result.summary.examples, 65);
  EXPECT_EQ(result.summary.gradients_accepted, 3);
}

TEST_F(TrainerTest, LearnsSyntheticDigits) {
  TrainOptions options = SyncOptions();
  options.epochs = test::Effort(5, 1);
  const Result result = Train(options, 2, 1);
  EXPECT_GE(result.summary.metric("val_accuracy").value(), test::Effort(80, 20) / 100.0);
}

}  // namespace
}  // namespace cairn::worker
