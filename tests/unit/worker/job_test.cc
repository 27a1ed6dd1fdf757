#include "worker/options/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

nn::Model Compiled(absl::string_view optimizer) {
  return nn::Model::FromJson(absl::StrCat(R"({"config": {"layers": [{"class_name": "Dense",
                              "config": {"units": 2, "input_shape": [3]}}]},
                              "compile_config": {"loss": "sparse_categorical_crossentropy", "optimizer": )",
                                          optimizer, "}}"),
                             "m.json")
      .value();
}

std::map<std::string, double> HyperparametersOf(const v1::OptimizerConfig& config) {
  return {config.hyperparameters().begin(), config.hyperparameters().end()};
}

constexpr char kScheduled[] = R"({"class_name": "SGD", "config": {"momentum": 0.5, "learning_rate": {
    "class_name": "PiecewiseConstantDecay", "config": {"boundaries": [10], "values": [1, 0.5]}}}})";

TEST(MakeOptimizer, KeepsTheFilesSchedule) {
  const auto config = MakeOptimizer({}, Compiled(kScheduled)).value();
  EXPECT_THAT(HyperparametersOf(config), ElementsAre(Pair("momentum", 0.5)));
  EXPECT_EQ(config.learning_rate_schedule().name(), "PiecewiseConstantDecay");
  EXPECT_THAT(config.learning_rate_schedule().boundaries(), ElementsAre(10));
  EXPECT_THAT(config.learning_rate_schedule().values(), ElementsAre(1, 0.5));
}

TEST(MakeOptimizer, LearningRateFlagReplacesTheSchedule) {
  TrainOptions options;
  options.optimizer.learning_rate = 0.25;
  const auto config = MakeOptimizer(options, Compiled(kScheduled)).value();
  EXPECT_FALSE(config.has_learning_rate_schedule());
  EXPECT_THAT(HyperparametersOf(config),
              UnorderedElementsAre(Pair("momentum", 0.5), Pair("learning_rate", 0.25)));
}

TEST(MakeOptimizer, LearningRateFlagIsLrOfTorchsOptimizers) {
  TrainOptions options;
  options.optimizer.name = "torch.Adam";
  options.optimizer.learning_rate = 0.25;
  EXPECT_THAT(HyperparametersOf(MakeOptimizer(options, Compiled(kScheduled)).value()),
              ElementsAre(Pair("lr", 0.25)));
}

TEST(MakeOptimizer, AnotherOptimizerIgnoresTheFilesSchedule) {
  TrainOptions options;
  options.optimizer.name = "adam";
  EXPECT_FALSE(MakeOptimizer(options, Compiled(kScheduled))->has_learning_rate_schedule());
}

TEST(MakeOptimizer, PlateauCallbackExcludesASchedule) {
  TrainOptions options;
  options.callbacks.plateau_factor = 0.5;
  EXPECT_EQ(std::string(MakeOptimizer(options, Compiled(kScheduled)).status().message()),
            "--reduce_lr_on_plateau does not go with the model file's learning rate schedule "
            "PiecewiseConstantDecay: replace it by --learning_rate");
  options.optimizer.learning_rate = 0.25;
  EXPECT_TRUE(MakeOptimizer(options, Compiled(kScheduled)).ok());
}

TEST(MakeOptimizer, UnknownListInAScheduleIsRefused) {
  const auto config = MakeOptimizer({}, Compiled(R"({"class_name": "SGD", "config": {"learning_rate": {
      "class_name": "PiecewiseConstantDecay", "config": {"limits": [10]}}}})"));
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("has an unknown list 'limits'"));
}

TEST(MakeOptimizer, ClipFlagReplacesTheFilesClipping) {
  TrainOptions options;
  options.optimizer.clipnorm = 2;
  options.optimizer.weight_decay = 0.125;
  const auto config =
      MakeOptimizer(options, Compiled(R"({"class_name": "Adam", "config": {"clipvalue": 0.5}})")).value();
  EXPECT_THAT(HyperparametersOf(config),
              UnorderedElementsAre(Pair("clipnorm", 2), Pair("weight_decay", 0.125)));
}

nn::Model CompiledWith(const std::string& metrics) {
  return nn::Model::FromJson(
             R"({"config": {"layers": [{"class_name": "Dense", "config": {"units": 3, "input_shape": [2]}}]},
                 "compile_config": {"loss": "mse", "metrics": )" +
                 metrics + "}}",
             "model")
      .value();
}

std::vector<std::string> NamesOf(const TrainOptions& options, const nn::Model& model) {
  std::vector<std::string> names;
  const auto specs = MakeMetrics(options, model, MakeObjective(options, model).value());
  for (const nn::MetricSpec& spec : specs.value()) names.push_back(spec.name);
  return names;
}

TEST(MakeMetrics, FlagsOverrideTheModelFile) {
  TrainOptions options;
  EXPECT_THAT(NamesOf(options, CompiledWith(R"(["mae"])")), ElementsAre("mae"));
  options.metrics = "mse, root_mean_squared_error";
  EXPECT_THAT(NamesOf(options, CompiledWith(R"(["mae"])")), ElementsAre("mse", "root_mean_squared_error"));
}

// 5 examples in batches of 2 for 2 workers: two steps per epoch, the second of which is empty for one worker.
TEST(MakeJob, WithBoundedStalenessEveryWorkerPushesInEveryStep) {
  TrainOptions options;
  options.batch_size = 2;
  options.epochs = 3;
  options.max_staleness = 4;
  options.staleness_aware_learning_rate = true;
  const net::ClusterSpec cluster =
      net::ClusterSpec::FromJson(R"({"ps": ["a:1"], "worker": ["b:1", "c:1"]})", "test").value();
  const auto job_in = [&](absl::string_view mode, int64_t examples) {
    options.mode = std::string(mode);
    return MakeJob(options, Compiled(R"({"class_name": "SGD"})"), cluster, examples).value();
  };
  EXPECT_EQ(job_in("ssp", 5).mode(), v1::MODE_SSP);
  EXPECT_EQ(job_in("ssp", 5).max_staleness(), 4);
  EXPECT_TRUE(job_in("ssp", 5).staleness_aware_learning_rate());
  EXPECT_EQ(job_in("ssp", 5).final_version(), 3 * 2 * 2);
  EXPECT_EQ(job_in("async", 5).mode(), v1::MODE_ASYNC);
  EXPECT_EQ(job_in("async", 5).final_version(), 3 * 3) << "an empty batch is not pushed";
}

TEST(MakeMetrics, UnknownNameIsRefused) {
  TrainOptions options;
  options.metrics = "mse,r2";
  const nn::Model model = CompiledWith("null");
  EXPECT_THAT(
      std::string(MakeMetrics(options, model, MakeObjective(options, model).value()).status().message()),
      HasSubstr("metric 'r2' is not supported; supported: accuracy, "));
}

TEST(MakeJob, ElasticJobHasAChiefAndNoFinalVersion) {
  net::ClusterSpec spec;
  ASSERT_TRUE(spec.Add({"ps", 0}, {"a", 1}).ok());
  ASSERT_TRUE(spec.Add({"worker", 3}, {"b", 1}).ok());
  TrainOptions options;
  options.mode = "sync";
  options.elastic = true;
  options.max_workers = 8;
  const auto job = MakeJob(options, Compiled(R"("sgd")"), spec, 100);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->workers(), ElementsAre("worker/0", "worker/3"));
  EXPECT_TRUE(job->dynamic_sharding());
  EXPECT_EQ(job->num_examples(), 100);
  EXPECT_EQ(job->final_version(), 0);
  EXPECT_EQ(job->replicas_to_aggregate(), 0);
  EXPECT_EQ(job->min_workers(), 1);
  EXPECT_EQ(job->max_workers(), 8);
}

TEST(MakeJob, RefusesSynchronizedNormalizationOfWorkersThatDoNotWaitForEachOther) {
  const nn::Model model = nn::Model::FromJson(R"({"config": {"layers": [{"class_name": "BatchNormalization",
                             "config": {"name": "norm", "input_shape": [3], "synchronized": true}}]},
                             "compile_config": {"loss": "mse", "optimizer": "sgd"}})",
                                              "m.json")
                              .value();
  TrainOptions options;
  const auto job_of = [&](absl::string_view cluster) {
    return MakeJob(options, model, net::ClusterSpec::FromJson(cluster, "test").value(), 100).status();
  };
  constexpr char kTwoWorkers[] = R"({"ps": ["a:1"], "worker": ["b:1", "c:1"]})";
  for (const char* mode : {"async", "ssp"}) {
    options.mode = mode;
    EXPECT_EQ(job_of(R"({"ps": ["a:1"], "worker": ["b:1"]})"), absl::OkStatus());
    EXPECT_EQ(job_of(kTwoWorkers),
              absl::InvalidArgumentError(absl::StrCat(
                  "layer 'norm' (BatchNormalization): synchronized: true is not supported where a batch is "
                  "divided among the workers of --mode ",
                  mode, "; set it to false, or do not divide the batch")));
  }
  for (const char* mode : {"sync", "allreduce"}) {
    options.mode = mode;
    EXPECT_EQ(job_of(kTwoWorkers), absl::OkStatus()) << mode;
  }
  options.mode = "sync";
  options.replicas_to_aggregate = 1;
  EXPECT_THAT(job_of(kTwoWorkers).message(), HasSubstr("of which a round takes the first"));
  options.replicas_to_aggregate = 2;
  EXPECT_EQ(job_of(kTwoWorkers), absl::OkStatus());
  options.bucket_boundaries = {8};
  EXPECT_THAT(job_of(kTwoWorkers).message(), HasSubstr("different lengths (--bucket_boundaries)"));
}

TEST(MakeJob, BackupsNeedAnotherServer) {
  net::ClusterSpec one, two;
  ASSERT_TRUE(one.Add({"ps", 0}, {"a", 1}).ok());
  ASSERT_TRUE(two.Add({"ps", 0}, {"a", 1}).ok());
  ASSERT_TRUE(two.Add({"ps", 1}, {"c", 1}).ok());
  for (net::ClusterSpec* spec : {&one, &two}) ASSERT_TRUE(spec->Add({"worker", 0}, {"b", 1}).ok());
  TrainOptions options;
  options.ps_replication = 1;
  EXPECT_EQ(MakeJob(options, Compiled(R"("sgd")"), two, 100).status(), absl::OkStatus());
  EXPECT_EQ(MakeJob(options, Compiled(R"("sgd")"), one, 100).status().message(),
            "--ps_replication=1: a backup needs another server, and the cluster has 1");
}

TEST(MakeJob, StaticShardingHasAllWorkersAndAFinalVersion) {
  net::ClusterSpec spec;
  ASSERT_TRUE(spec.Add({"ps", 0}, {"a", 1}).ok());
  ASSERT_TRUE(spec.Add({"worker", 0}, {"b", 1}).ok());
  const auto job = MakeJob({}, Compiled(R"("sgd")"), spec, 100);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(job->dynamic_sharding() || job->elastic());
  EXPECT_EQ(job->final_version(), 4);
}

}  // namespace
}  // namespace cairn::worker
