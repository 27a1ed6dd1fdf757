#include "worker/report/summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace cairn::worker {
namespace {

TEST(Summary, MetricsAreAnObjectAndCommonOnesAreAlsoAtTopLevel) {
  Summary summary;
  summary.metrics = {{"accuracy", 0.5}, {"auc", 0.75}, {"loss", 2}, {"val_auc", 0.25}, {"val_loss", 4}};
  const auto json = nlohmann::json::parse(ToJson(summary));
  EXPECT_EQ(
      json["metrics"],
      nlohmann::json::parse(R"({"accuracy": 0.5, "auc": 0.75, "loss": 2, "val_auc": 0.25, "val_loss": 4})"));
  EXPECT_EQ(json["accuracy"], 0.5);
  EXPECT_EQ(json["loss"], 2);
  EXPECT_EQ(json["val_loss"], 4);
  EXPECT_TRUE(json["val_accuracy"].is_null());
}

TEST(Summary, StalenessIsAListOfCounts) {
  Summary summary;
  summary.staleness_histogram = {5, 0, 2};
  EXPECT_EQ(nlohmann::json::parse(ToJson(summary))["staleness_histogram"], nlohmann::json({5, 0, 2}));
}

TEST(Summary, NanIsNull) {
  Summary summary;
  summary.metrics = {{"loss", std::nan("")}};
  const auto json = nlohmann::json::parse(ToJson(summary));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["metrics"]["loss"].is_null());
}

TEST(Summary, OneLineEndsWithTheValidationMetrics) {
  Summary summary;
  summary.global_step = 10;
  summary.examples = 640;
  summary.seconds = 2;
  summary.examples_per_second = 320;
  EXPECT_EQ(OneLine(summary), "10 steps, 640 examples in 2.0 s (320 examples/s)");
  summary.metrics = {{"loss", 1}, {"val_auc", 0.75}, {"val_loss", 0.5}};
  EXPECT_EQ(OneLine(summary),
            "10 steps, 640 examples in 2.0 s (320 examples/s): val_auc 0.7500, val_loss 0.5000");
}

}  // namespace
}  // namespace cairn::worker
