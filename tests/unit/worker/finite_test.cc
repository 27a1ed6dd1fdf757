#include "worker/model/finite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/cpu/device.h"
#include "nn/replica/replica.h"
#include "tests/support/model_inputs.h"

namespace cairn::worker {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

nn::Model MakeModel() {
  return *nn::Model::FromJson(R"({"config": {"layers": [
      {"class_name": "InputLayer", "config": {"batch_shape": [null, 3], "name": "in"}},
      {"class_name": "Dense", "config": {"units": 2, "name": "hidden", "activation": "relu"}},
      {"class_name": "Dense", "config": {"units": 1, "name": "head"}}]}})",
                              "model");
}

class FiniteTest : public testing::Test {
 protected:
  std::string Explained(const std::string& layer = "") {
    const nn::BatchView batch = {.examples = 2, .inputs = FloatRows(2, inputs_), .targets = targets_};
    return Explain({.model = model_,
                    .parameters = parameters_,
                    .batch = batch,
                    .rows = rows_,
                    .data = "data.npz",
                    .layer = layer});
  }

  const nn::Model model_ = MakeModel();
  std::vector<float> parameters_ = std::vector<float>(static_cast<size_t>(model_.num_parameters()), 0.5f);
  std::vector<float> inputs_ = std::vector<float>(6, 1), targets_ = {0, 0};
  std::vector<uint32_t> rows_ = {7, 12};
};

TEST_F(FiniteTest, FiniteParametersPass) {
  EXPECT_TRUE(CheckFinite(model_, parameters_, "weights.npz").ok());
}

TEST_F(FiniteTest, VariablePositionAndFileAreNamed) {
  parameters_[static_cast<size_t>(model_.variables()[0].offset) + 3] = -kInfinity;
  const absl::Status status = CheckFinite(model_, parameters_, "weights.npz");
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "weights.npz: 'hidden/kernel'[1,1] is -inf: weights must be finite numbers");
}

TEST_F(FiniteTest, BadInputIsNamedByItsExampleInTheSet) {
  inputs_[5] = kNaN;
  parameters_[0] = kNaN;  // possibly a consequence of the data
  EXPECT_EQ(Explained(), "the data are at fault: input [2] of example 12 (from 0) of data.npz is nan");
}

TEST_F(FiniteTest, BadTargetIsNamed) {
  targets_[0] = kInfinity;
  EXPECT_EQ(Explained(), "the data are at fault: target 0 of example 7 (from 0) of data.npz is inf");
}

TEST_F(FiniteTest, BadParameterIsNamedIfTheDataAreFinite) {
  parameters_.back() = kNaN;
  EXPECT_EQ(Explained(), "the parameters are at fault, the data are finite: 'head/bias'[0] is nan");
}

TEST_F(FiniteTest, OverflowNamesTheLayerAndTheLargestParameter) {
  parameters_[0] = -3e38f;
  EXPECT_EQ(Explained("layer 'hidden'"),
            "the step overflowed, the data and the parameters are finite: the output of layer 'hidden' is "
            "the first "
            "that is not; the largest parameter, of 'hidden/kernel', is 3e+38");
}

// Keras, too, divides 0 by 0 here, and trains on with NaN.
TEST(MaskedMean, ExampleWithoutStepsIsNamed) {
  const nn::Model model = *nn::Model::FromJson(R"({"config": {"layers": [
      {"class_name": "InputLayer", "config": {"batch_shape": [null, 3], "name": "in", "dtype": "int32"}},
      {"class_name": "Embedding", "config": {"input_dim": 9, "output_dim": 2, "mask_zero": true, "name": "e"}},
      {"class_name": "GlobalAveragePooling1D", "config": {"name": "pool"}},
      {"class_name": "Dense", "config": {"units": 1, "name": "head"}}]}})",
                                               "model");
  const std::vector<float> parameters(static_cast<size_t>(model.num_parameters()), 0.5f), targets = {0, 0};
  const std::vector<uint32_t> rows = {7, 12};
  const auto explained = [&](std::vector<int32_t> ids) {
    const nn::BatchView batch = {.examples = 2,
                                 .inputs = {{.dtype = DType::kInt32, .shape = {2, 3}, .data = ids.data()}},
                                 .targets = targets};
    return Explain({.model = model,
                    .parameters = parameters,
                    .batch = batch,
                    .rows = rows,
                    .data = "texts",
                    .layer = ""});
  };
  EXPECT_EQ(explained({0, 4, 0, 0, 0, 0}),
            "the data are at fault: the mean of layer 'pool' over the steps of example 12 (from 0) of texts "
            "is 0/0, as "
            "in Keras: all its steps are masked, as those of a text without words; leave the example out");
  EXPECT_THAT(explained({0, 4, 0, 0, 0, 1}), testing::HasSubstr("the step overflowed"));
}

TEST_F(FiniteTest, ReplicaReportsTheLayerThatOverflowed) {
  const auto device = *kernels::CreateCpuDevice(0, 1);
  const auto replica =
      *nn::Replica::Create(model_, nn::LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device);
  std::vector<float> gradients(parameters_.size());
  const nn::BatchView batch = {.examples = 2, .inputs = FloatRows(2, inputs_), .targets = targets_};
  const auto run = [&] {
    return replica->ForwardBackward(parameters_, batch, absl::MakeSpan(gradients), [](int) {});
  };
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(replica->FirstNonFiniteLayer(), "");
  parameters_[static_cast<size_t>(model_.variables()[2].offset)] = 3e38f;
  inputs_[0] = 1e10f;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(replica->FirstNonFiniteLayer(), "layer 'head'");
}

}  // namespace
}  // namespace cairn::worker
