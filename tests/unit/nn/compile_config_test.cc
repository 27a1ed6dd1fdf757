#include "nn/layer/compile_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "nn/loss.h"
#include "nn/model.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

absl::StatusOr<CompileConfig> Parse(const char* text) {
  return ParseCompileConfig(nlohmann::json::parse(text));
}

MATCHER_P3(IsMetric, class_name, name, weighted, "") {
  return arg.metric.class_name == class_name && arg.metric.texts.at("name") == name &&
         arg.weighted == weighted;
}

std::string CompileFault(const char* text) {
  return std::string(Parse(text).status().message());
}

TEST(CompileConfig, ARealExportHasOptimizerLossAndMetrics) {
  const CompileConfig config = Model::FromFile(kKerasJson).value().compile_config();
  ASSERT_TRUE(config.optimizer.has_value());
  EXPECT_EQ(config.optimizer->class_name, "Adam");
  EXPECT_EQ(config.optimizer->config.at("learning_rate"), 0.0010000000474974513);
  EXPECT_EQ(config.optimizer->config.at("epsilon"), 1e-07);
  EXPECT_EQ(config.optimizer->config.at("amsgrad"), 0);
  EXPECT_EQ(config.optimizer->config.count("weight_decay"), 0u) << "nulls are absent";
  ASSERT_EQ(config.losses.size(), 1u);
  EXPECT_TRUE(config.losses[0].output.all());
  EXPECT_TRUE(ParseLoss(config.losses[0].loss).value().from_logits);
  EXPECT_THAT(config.metrics, ElementsAre(IsMetric("accuracy", "accuracy", false)));
}

TEST(CompileConfig, AnUncompiledModelHasAnEmptyConfig) {
  const auto config = Parse("null");
  ASSERT_TRUE(config.ok());
  EXPECT_FALSE(config->optimizer.has_value());
  EXPECT_TRUE(config->losses.empty());
}

// As written by tf_keras 2.21 into a .keras and an .h5 file.
TEST(CompileConfig, Keras2ConfigsAreRead) {
  const auto config = Parse(R"({
      "optimizer": {"class_name": "Custom>Adam", "config": {"name": "Adam", "learning_rate": 0.5}},
      "loss": {"module": "keras.losses", "class_name": "BinaryCrossentropy", "config": {"reduction": "auto",
          "name": "binary_crossentropy", "from_logits": true, "label_smoothing": 0.0, "axis": -1,
          "fn": "binary_crossentropy"}, "registered_name": null},
      "metrics": [[
        {"class_name": "MeanMetricWrapper", "config": {"name": "accuracy", "dtype": "float32",
                                                       "fn": "categorical_accuracy"}},
        {"class_name": "MeanMetricWrapper", "config": {"name": "mae", "fn": "mean_absolute_error"}},
        {"class_name": "BinaryAccuracy", "config": {"name": "hits", "fn": "binary_accuracy", "threshold": 0.5}}
      ]]})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->optimizer->class_name, "Adam");
  EXPECT_TRUE(ParseLoss(config->losses.at(0).loss).value().from_logits);
  EXPECT_THAT(config->metrics, ElementsAre(IsMetric("accuracy", "accuracy", false),
                                           IsMetric("mean_absolute_error", "mae", false),
                                           IsMetric("BinaryAccuracy", "hits", false)));
}

TEST(CompileConfig, CustomFunctionsAndClassesAreRefused) {
  EXPECT_EQ(CompileFault(R"({"loss": {"class_name": "BinaryCrossentropy", "config": {"fn": "mine"}}})"),
            "loss: fn: \"mine\" is not supported");
  EXPECT_THAT(CompileFault(R"({"optimizer": {"module": "lab", "class_name": "Adam", "config": {}}})"),
              HasSubstr("optimizer: is a custom class of module 'lab'"));
}

TEST(CompileConfig, PlainNamesAreEnough) {
  const auto config = Parse(R"({"optimizer": "rmsprop", "loss": "sparse_categorical_crossentropy"})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->optimizer->class_name, "RMSprop");
  EXPECT_EQ(config->losses.at(0).loss.class_name, "sparse_categorical_crossentropy");
  EXPECT_FALSE(ParseLoss(config->losses.at(0).loss).value().from_logits) << "Keras' default";
}

TEST(CompileConfig, MetricsMayBeNamesObjectsFunctionsOrListsPerOutput) {
  const auto config = Parse(R"({
      "metrics": [["mse"], {"class_name": "SparseCategoricalAccuracy", "config": {"name": "acc"}}],
      "weighted_metrics": [{"class_name": "function", "config": "mean_absolute_error"}]})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->metrics,
              ElementsAre(IsMetric("mse", "mse", false), IsMetric("SparseCategoricalAccuracy", "acc", false),
                          IsMetric("mean_absolute_error", "mean_absolute_error", true)));
}

TEST(CompileConfig, AMetricKeepsItsOptions) {
  const auto config = Parse(R"({"metrics": [{"class_name": "AUC", "config":
      {"name": "auc_pr", "dtype": "float32", "num_thresholds": 100, "curve": "PR", "num_labels": null,
       "multi_label": false}}]})");
  ASSERT_TRUE(config.ok()) << config.status();
  const KerasObject& metric = config->metrics.at(0).metric;
  EXPECT_THAT(metric.config, ElementsAre(Pair("multi_label", 0), Pair("num_thresholds", 100)));
  EXPECT_THAT(metric.texts, ElementsAre(Pair("curve", "PR"), Pair("name", "auc_pr")));
}

TEST(CompileConfig, NonScalarMetricOptionsAreRefusedNamingTheClass) {
  EXPECT_THAT(
      CompileFault(R"({"metrics": [{"class_name": "Precision", "config": {"thresholds": [0.4, 0.9]}}]})"),
      HasSubstr("metrics: \"Precision\": thresholds: [0.4,0.9] is not supported, only one number: list "
                "the metric once for each threshold"));
}

// As written by Keras 3, including names and nulls.
TEST(CompileConfig, ALearningRateScheduleReplacesTheNumber) {
  const auto config = Parse(R"({"optimizer": {"module": "keras.optimizers", "class_name": "Adam", "config": {
      "name": "adam", "beta_1": 0.9, "learning_rate": {
        "module": "keras.optimizers.schedules", "class_name": "ExponentialDecay", "registered_name": null,
        "config": {"initial_learning_rate": 0.1, "decay_steps": 100, "decay_rate": 0.96, "staircase": true,
                   "name": "ExponentialDecay"}}}}})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->optimizer->config.count("learning_rate"), 0u);
  EXPECT_EQ(config->optimizer->config.at("beta_1"), 0.9);
  ASSERT_TRUE(config->learning_rate_schedule.has_value());
  EXPECT_EQ(config->learning_rate_schedule->class_name, "ExponentialDecay");
  EXPECT_EQ(config->learning_rate_schedule->config.at("decay_steps"), 100);
  EXPECT_EQ(config->learning_rate_schedule->config.at("staircase"), 1);
}

TEST(CompileConfig, ASchedulesConfigMayHaveLists) {
  const auto config = Parse(R"({"optimizer": {"class_name": "SGD", "config": {"learning_rate": {
      "class_name": "PiecewiseConstantDecay",
      "config": {"boundaries": [100, 200], "values": [1.0, 0.5, 0.1], "name": "PiecewiseConstant"}}}}})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->learning_rate_schedule->lists.at("boundaries"), ElementsAre(100, 200));
  EXPECT_THAT(config->learning_rate_schedule->lists.at("values"), ElementsAre(1, 0.5, 0.1));
}

TEST(CompileConfig, ErrorsInAScheduleNameTheirPath) {
  EXPECT_THAT(CompileFault(R"({"optimizer": {"class_name": "Adam", "config": {"learning_rate":
                          {"class_name": "ExponentialDecay", "config": {"decay_steps": "many"}}}}})"),
              HasSubstr("optimizer: learning_rate: decay_steps: \"many\" is not supported"));
  EXPECT_THAT(
      CompileFault(R"({"optimizer": {"class_name": "Adam", "config": {"learning_rate": {"rate": 1}}}})"),
      HasSubstr("optimizer: learning_rate: expected a name or an object with class_name"));
}

TEST(CompileConfig, AListOutsideAScheduleIsRefused) {
  EXPECT_THAT(CompileFault(R"({"optimizer": {"class_name": "Adam", "config": {"beta_1": [0.9]}}})"),
              HasSubstr("optimizer: beta_1: ["));
}

TEST(CompileConfig, UnsupportedOptionsAreRefused) {
  EXPECT_THAT(
      CompileFault(
          R"({"loss": {"class_name": "SparseCategoricalCrossentropy", "config": {"reduction": "sum"}}})"),
      HasSubstr("loss: reduction: \"sum\" is not supported, only \"sum_over_batch_size\""));
  EXPECT_THAT(CompileFault(R"({"loss_weights": [0.5, "a"]})"),
              HasSubstr("loss_weights: expected a list of numbers or a dictionary"));
  EXPECT_THAT(CompileFault(R"({"loss": ["a", 3]})"),
              HasSubstr("loss: expected a name or an object with class_name"));
  EXPECT_THAT(CompileFault(R"({"optimiser": "adam"})"), HasSubstr("optimiser: unknown field"));
}

TEST(CompileConfig, ErrorsNameTheFileAndTheSection) {
  const std::string json =
      R"({"config": {"layers": [{"class_name": "Dense", "config": {"units": 2, "input_shape": [3]}}]},
          "compile_config": {"loss": 3}})";
  EXPECT_THAT(std::string(Model::FromJson(json, "m.json").status().message()),
              HasSubstr("m.json: compile_config: loss: "));
}

// As Keras 3.15 writes it, with its defaults.
constexpr char kScaled[] = R"({"optimizer": {"module": "keras.optimizers", "class_name": "LossScaleOptimizer",
    "config": {"name": "loss_scale_optimizer", "inner_optimizer": {"module": "keras.optimizers", "class_name": "SGD",
      "config": {"name": "sgd", "learning_rate": {"module": "keras.optimizers.schedules",
        "class_name": "ExponentialDecay", "config": {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5,
          "staircase": false, "name": "ExponentialDecay"}, "registered_name": null},
        "weight_decay": null, "use_ema": false, "momentum": 0.9, "nesterov": false}, "registered_name": null},
      "initial_scale": 32768.0, "dynamic_growth_steps": 2000}, "registered_name": null}})";

TEST(CompileConfig, OptimizerWithALossScaleIsTheOneWithin) {
  const auto config = Parse(kScaled);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->optimizer->class_name, "SGD");
  EXPECT_EQ(config->optimizer->config.at("momentum"), 0.9);
  EXPECT_EQ(config->optimizer->config.count("initial_scale"), 0u);
  EXPECT_EQ(config->learning_rate_schedule->class_name, "ExponentialDecay");
}

TEST(CompileConfig, OtherOptionsOfALossScaleAreRefused) {
  EXPECT_THAT(
      CompileFault(R"({"optimizer": {"class_name": "LossScaleOptimizer", "config": {"initial_scale": 1}}})"),
      HasSubstr("optimizer: LossScaleOptimizer: inner_optimizer: required"));
  EXPECT_THAT(CompileFault(R"({"optimizer": {"class_name": "LossScaleOptimizer",
                  "config": {"inner_optimizer": "adam", "clipnorm": 1}}})"),
              HasSubstr("optimizer: LossScaleOptimizer: clipnorm: unknown field"));
}

// The job refuses its name, and lists the supported optimizers.
TEST(CompileConfig, MuonIsReadWithoutItsLists) {
  const auto config = Parse(R"({"optimizer": {"module": "keras.optimizers", "class_name": "Muon", "config": {
      "name": "muon", "learning_rate": 0.01, "exclude_layers": [], "ns_steps": 5}, "registered_name": null}})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->optimizer->class_name, "Muon");
  EXPECT_TRUE(config->optimizer->config.empty());
}

}  // namespace
}  // namespace cairn::nn
