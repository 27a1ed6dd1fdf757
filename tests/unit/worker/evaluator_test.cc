#include "worker/training/evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/core/status.h"
#include "kernels/cpu/device.h"

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Example i has the target i % 4 and, in the weighted set, the same weight. There are several batches, the
// last one smaller.
class SmallNumbers final : public data::Dataset {
 public:
  static constexpr int64_t kSize = 300;
  explicit SmallNumbers(bool weighted) : weighted_(weighted) {
    for (int64_t i = 0; i < kSize; ++i) weights_.values.push_back(static_cast<float>(i % 4));
  }

  int64_t size() const override { return kSize; }
  const Shape& example_shape() const override { return shape_; }
  data::TargetInfo target_info() const override { return {.shape = {1}}; }
  const data::Weights* weights() const override { return weighted_ ? &weights_ : nullptr; }
  void Read(int64_t index, absl::Span<const MutableTensorView> inputs,
            absl::Span<float> target) const override {
    inputs[0].floats()[0] = 1;
    target[0] = static_cast<float>(index % 4);
  }

 private:
  const Shape shape_ = {1};
  const bool weighted_;
  data::Weights weights_;
};

// The same with one input that is not finite, in the second batch.
class OneNaN final : public data::Dataset {
 public:
  int64_t size() const override { return numbers_.size(); }
  const Shape& example_shape() const override { return numbers_.example_shape(); }
  data::TargetInfo target_info() const override { return {.shape = {1}}; }
  std::string inputs_name() const override { return "test.csv"; }
  void Read(int64_t index, absl::Span<const MutableTensorView> inputs,
            absl::Span<float> target) const override {
    numbers_.Read(index, inputs, target);
    if (index == 290) inputs[0].floats()[0] = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  const SmallNumbers numbers_{false};
};

// A network that outputs 0, with the squared error as loss: all results are quotients of integers.
class EvaluatorTest : public testing::Test {
 protected:
  absl::StatusOr<nn::MetricValues> Evaluate(const data::Dataset& dataset, bool stop = false) {
    const nn::LossSpec loss = {.kind = kernels::LossKind::kMeanSquaredError};
    const auto metrics = *nn::ParseMetrics({{{nn::MetricOfName("mse")}, {nn::MetricOfName("mae"), true}}},
                                           loss, model_.output_shape());
    const auto device = *kernels::CreateCpuDevice(0, 1);
    const auto replica = *nn::Replica::Create(model_, loss, *device);
    Evaluator evaluator(dataset, model_, *replica, metrics);
    const std::vector<float> parameters(static_cast<size_t>(model_.num_parameters()), parameter_);
    CAIRN_RETURN_IF_ERROR(evaluator.Run(parameters, [stop] { return stop; }));
    return evaluator.Run(parameters, [stop] { return stop; });  // must not depend on the first run
  }

  float parameter_ = 0;  // the value of every parameter

 private:
  const nn::Model model_ = *nn::Model::FromJson(
      R"({"config": {"layers": [{"class_name": "Dense", "config": {"units": 1, "input_shape": [1]}}]}})",
      "model");
};

TEST_F(EvaluatorTest, EveryExampleIsCountedOnce) {
  const auto values = Evaluate(SmallNumbers(false));
  ASSERT_TRUE(values.ok()) << values.status();
  // There are 75 examples for each of 0, 1, 2, 3.
  EXPECT_THAT(*values, ElementsAre(Pair("loss", 3.5), Pair("mae", 1.5), Pair("mse", 3.5)));
}

TEST_F(EvaluatorTest, WeightsScaleTheLossAndWeightedMetrics) {
  const auto values = Evaluate(SmallNumbers(true));
  ASSERT_TRUE(values.ok()) << values.status();
  // The sum of the weights is 450, but the loss is a mean over 300 examples.
  EXPECT_THAT(*values, ElementsAre(Pair("loss", 2700.0 / 300), Pair("mae", 1050.0 / 450), Pair("mse", 3.5)));
}

TEST_F(EvaluatorTest, StopsBetweenBatches) {
  EXPECT_EQ(Evaluate(SmallNumbers(false), /*stop=*/true).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(EvaluatorTest, NanLossNamesTheExample) {
  const absl::Status status = Evaluate(OneNaN()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "the loss is nan in the evaluation of test.csv: the data are at fault: input [0] of example 290 "
            "(from 0) of test.csv is nan");
}

TEST_F(EvaluatorTest, NanLossNamesTheParameter) {
  parameter_ = std::numeric_limits<float>::infinity();
  EXPECT_THAT(
      std::string(Evaluate(SmallNumbers(false)).status().message()),
      ::testing::HasSubstr("the parameters are at fault, the data are finite: 'dense/kernel'[0,0] is inf"));
}

}  // namespace
}  // namespace cairn::worker
