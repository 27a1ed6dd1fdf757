#include "worker/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
