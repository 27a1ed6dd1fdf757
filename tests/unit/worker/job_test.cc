#include "worker/job.h"

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

TEST(MakeOptimizer, CarriesTheFilesSchedule) {
  const auto config = MakeOptimizer({}, Compiled(kScheduled)).value();
  EXPECT_THAT(HyperparametersOf(config), ElementsAre(Pair("momentum", 0.5)));
  EXPECT_EQ(config.learning_rate_schedule().name(), "PiecewiseConstantDecay");
  EXPECT_THAT(config.learning_rate_schedule().boundaries(), ElementsAre(10));
  EXPECT_THAT(config.learning_rate_schedule().values(), ElementsAre(1, 0.5));
}

TEST(MakeOptimizer, ALearningRateFlagReplacesTheSchedule) {
  TrainOptions options;
  options.learning_rate = 0.25;
  const auto config = MakeOptimizer(options, Compiled(kScheduled)).value();
  EXPECT_FALSE(config.has_learning_rate_schedule());
  EXPECT_THAT(HyperparametersOf(config),
              UnorderedElementsAre(Pair("momentum", 0.5), Pair("learning_rate", 0.25)));
}

TEST(MakeOptimizer, AnotherOptimizerLeavesTheFilesScheduleBehind) {
  TrainOptions options;
  options.optimizer = "adam";
  EXPECT_FALSE(MakeOptimizer(options, Compiled(kScheduled))->has_learning_rate_schedule());
}

TEST(MakeOptimizer, AnUnknownListOfASchedulesConfigIsRefused) {
  const auto config = MakeOptimizer({}, Compiled(R"({"class_name": "SGD", "config": {"learning_rate": {
      "class_name": "PiecewiseConstantDecay", "config": {"limits": [10]}}}})"));
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("has an unknown list 'limits'"));
}

TEST(MakeOptimizer, AClipFlagReplacesWhicheverClipTheFileHas) {
  TrainOptions options;
  options.clipnorm = 2;
  options.weight_decay = 0.125;
  const auto config =
      MakeOptimizer(options, Compiled(R"({"class_name": "Adam", "config": {"clipvalue": 0.5}})")).value();
  EXPECT_THAT(HyperparametersOf(config),
              UnorderedElementsAre(Pair("clipnorm", 2), Pair("weight_decay", 0.125)));
}

TEST(MakeJob, AGlobalNormIsForOneServer) {
  TrainOptions options;
  options.global_clipnorm = 1;
  const nn::Model model = Compiled("\"adam\"");
  net::ClusterSpec cluster;
  ASSERT_TRUE(cluster.Add({"worker", 0}, {"localhost", 1}).ok());
  ASSERT_TRUE(cluster.Add({"ps", 0}, {"localhost", 2}).ok());
  EXPECT_TRUE(MakeJob(options, model, cluster, 10).ok());
  ASSERT_TRUE(cluster.Add({"ps", 1}, {"localhost", 3}).ok());
  const auto job = MakeJob(options, model, cluster, 10);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(job.status().message()),
      HasSubstr("global_clipnorm 1 limits the gradients of all variables together, but each of 2 servers"));
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
  const auto specs = MakeMetrics(options, model, MakeLoss(options, model).value());
  for (const nn::MetricSpec& spec : specs.value()) names.push_back(spec.name);
  return names;
}

TEST(MakeMetrics, FlagsOverrideTheModelFile) {
  TrainOptions options;
  EXPECT_THAT(NamesOf(options, CompiledWith(R"(["mae"])")), ElementsAre("mae"));
  options.metrics = "mse, root_mean_squared_error";
  EXPECT_THAT(NamesOf(options, CompiledWith(R"(["mae"])")), ElementsAre("mse", "root_mean_squared_error"));
}

TEST(MakeMetrics, AnUnknownNameIsRefused) {
  TrainOptions options;
  options.metrics = "mse,r2";
  const nn::Model model = CompiledWith("null");
  EXPECT_THAT(std::string(MakeMetrics(options, model, MakeLoss(options, model).value()).status().message()),
              HasSubstr("metric 'r2' is not supported; supported: accuracy, "));
}

}  // namespace
}  // namespace cairn::worker
