#include "nn/replica/replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "common/core/random.h"
#include "kernels/cpu/device.h"
#include "tests/support/far_device.h"
#include "tests/support/model_inputs.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

class ReplicaTest : public testing::Test {
 protected:
  std::unique_ptr<Replica> MakeReplica() {
    return Replica::Create(model_, LossSpec{.from_logits = true}, *device_).value();
  }
  BatchView Batch(int64_t examples) {
    Random random(1, "inputs");
    inputs_.resize(static_cast<size_t>(examples * model_.input_shape().num_elements()));
    for (float& value : inputs_) value = random.NextUniform();
    labels_.resize(static_cast<size_t>(examples));
    for (float& label : labels_) label = static_cast<float>(random.NextBelow(10));
    return {.examples = examples, .inputs = FloatRows(examples, inputs_), .targets = labels_};
  }

  const Model model_ = Model::FromFile(kKerasJson).value();
  const std::unique_ptr<kernels::Device> device_ = kernels::CreateCpuDevice(0, 1).value();
  const std::vector<float> parameters_ = model_.InitialParameters(1);
  std::vector<float> gradients_ =
      std::vector<float>(parameters_.size(), std::numeric_limits<float>::quiet_NaN());
  std::vector<float> inputs_;
  std::vector<float> labels_;
};

TEST_F(ReplicaTest, AnUntrainedNetworksLossIsTheLogOfItsClasses) {
  const auto result =
      MakeReplica()->ForwardBackward(parameters_, Batch(64), absl::MakeSpan(gradients_), [](int) {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->sums.examples, 64);
  EXPECT_NEAR(result->sums.loss / 64, std::log(10.0), 0.2);
  for (float gradient : gradients_) ASSERT_TRUE(std::isfinite(gradient));
}

TEST_F(ReplicaTest, EveryGradientIsAnnouncedOnceLastLayerFirstAndFinal) {
  std::vector<int> announced;
  std::vector<float> at_announcement(gradients_.size());
  const auto result =
      MakeReplica()->ForwardBackward(parameters_, Batch(8), absl::MakeSpan(gradients_), [&](int index) {
        announced.push_back(index);
        const ModelVariable& variable = model_.variables()[static_cast<size_t>(index)];
        const auto begin = static_cast<size_t>(variable.offset);
        const auto end = begin + static_cast<size_t>(variable.shape.num_elements());
        for (size_t i = begin; i < end; ++i) at_announcement[i] = gradients_[i];
      });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(announced, ElementsAre(8, 9, 6, 7, 4, 5, 2, 3, 0, 1));
  EXPECT_EQ(at_announcement, gradients_);
}

class StartForwardTest : public ReplicaTest {
 protected:
  std::vector<float> Gradients(Replica& replica, const BatchView& batch) {
    EXPECT_TRUE(replica.ForwardBackward(parameters_, batch, absl::MakeSpan(gradients_), [](int) {}).ok());
    return gradients_;
  }
};

TEST_F(StartForwardTest, VariablesAreAwaitedInLayerOrderAndNoBitChanges) {
  const auto replica = MakeReplica();
  const BatchView batch = Batch(8);
  const std::vector<float> at_once = Gradients(*MakeReplica(), batch);
  std::vector<int> awaited;
  ASSERT_TRUE(replica->starts_early());
  replica->StartForward(parameters_, batch, [&](int variable) {
    awaited.push_back(variable);
    return true;
  });
  EXPECT_THAT(awaited, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(Gradients(*replica, batch), at_once);
}

TEST_F(StartForwardTest, ParametersAreReadOnlyAfterTheyArrive) {
  const auto replica = MakeReplica();
  const BatchView batch = Batch(8);
  const std::vector<float> at_once = Gradients(*MakeReplica(), batch);
  std::vector<float> coming(parameters_.size(), std::numeric_limits<float>::quiet_NaN());
  replica->StartForward(coming, batch, [&](int index) {
    const ModelVariable& variable = model_.variables()[static_cast<size_t>(index)];
    std::copy_n(parameters_.begin() + variable.offset, variable.shape.num_elements(),
                coming.begin() + variable.offset);
    return true;
  });
  ASSERT_TRUE(replica->ForwardBackward(coming, batch, absl::MakeSpan(gradients_), [](int) {}).ok());
  EXPECT_EQ(gradients_, at_once);
}

TEST_F(StartForwardTest, IncompleteDroppedOrMismatchedPassesAreNotUsed) {
  const auto replica = MakeReplica();
  const BatchView batch = Batch(8);
  const std::vector<float> at_once = Gradients(*MakeReplica(), batch);
  // A pass over these values would leave other activations.
  std::vector<float> parameters = parameters_, other(parameters_.size(), 0.5f);
  const auto ahead_of_other_values = [&] {
    parameters = other;
    replica->StartForward(parameters, batch, [](int) { return true; });
    parameters = parameters_;
  };
  const auto gradients = [&] {
    EXPECT_TRUE(replica->ForwardBackward(parameters, batch, absl::MakeSpan(gradients_), [](int) {}).ok());
    return gradients_;
  };
  ahead_of_other_values();
  EXPECT_NE(gradients(), at_once) << "otherwise this test proves nothing";
  replica->StartForward(parameters, batch, [](int variable) { return variable < 4; });
  EXPECT_EQ(gradients(), at_once) << "cut short";
  ahead_of_other_values();
  replica->DropForward();
  EXPECT_EQ(gradients(), at_once) << "dropped";
  ahead_of_other_values();
  ASSERT_TRUE(replica->Evaluate(parameters, batch).ok());
  EXPECT_EQ(gradients(), at_once) << "an evaluation was run in between";
  ahead_of_other_values();
  EXPECT_EQ(Gradients(*replica, batch), at_once) << "other parameters";
}

TEST_F(ReplicaTest, StepsDownTheGradientReduceTheLoss) {
  const auto replica = MakeReplica();
  const BatchView batch = Batch(32);
  std::fill(inputs_.begin(), inputs_.end(), 0.0f);
  for (size_t i = 0; i < labels_.size(); ++i) {  // two bright rows for each class
    std::fill_n(inputs_.begin() + static_cast<int64_t>(i * 784) + static_cast<int64_t>(labels_[i]) * 56, 56,
                1.0f);
  }
  std::vector<float> parameters = parameters_;
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    const auto result = replica->ForwardBackward(parameters, batch, absl::MakeSpan(gradients_), [](int) {});
    ASSERT_TRUE(result.ok()) << result.status();
    if (step == 0) first = result->sums.loss;
    last = result->sums.loss;
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i] -= 0.1f * gradients_[i];
  }
  EXPECT_LT(last, first / 2);
}

TEST_F(ReplicaTest, EvaluateGivesTheSumsOfForwardBackward) {
  const auto replica = MakeReplica();
  const BatchView batch = Batch(10);
  const auto trained = replica->ForwardBackward(parameters_, batch, absl::MakeSpan(gradients_), [](int) {});
  const auto evaluated = replica->Evaluate(parameters_, batch);
  ASSERT_TRUE(trained.ok() && evaluated.ok());
  EXPECT_EQ(trained->sums.loss, evaluated->sums.loss);
  EXPECT_EQ(evaluated->sums.examples, 10);
}

TEST_F(ReplicaTest, ForwardBackwardAndEvaluateReturnTheSameOutputs) {
  const auto replica = MakeReplica();
  const BatchView batch = Batch(10);
  const auto trained = replica->ForwardBackward(parameters_, batch, absl::MakeSpan(gradients_), [](int) {});
  ASSERT_TRUE(trained.ok()) << trained.status();
  const std::vector<float> outputs(trained->outputs.begin(), trained->outputs.end());
  EXPECT_EQ(outputs.size(), 100u);
  const auto evaluated = replica->Evaluate(parameters_, batch);
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_EQ(evaluated->outputs, absl::MakeConstSpan(outputs));
}

TEST_F(ReplicaTest, WeightsScaleTheLossAndTheGradient) {
  const auto replica = MakeReplica();
  BatchView batch = Batch(4);
  std::vector<float> plain(gradients_.size());
  const auto unweighted = replica->ForwardBackward(parameters_, batch, absl::MakeSpan(plain), [](int) {});
  const std::vector<float> weights(4, 2.0f);
  batch.weights = weights;
  const auto weighted = replica->ForwardBackward(parameters_, batch, absl::MakeSpan(gradients_), [](int) {});
  ASSERT_TRUE(unweighted.ok() && weighted.ok());
  EXPECT_EQ(weighted->sums.loss, 2 * unweighted->sums.loss);
  for (float& gradient : plain) gradient *= 2;
  EXPECT_EQ(gradients_, plain);  // multiplying by a power of two does not round
}

TEST_F(ReplicaTest, UnevenBatchesInAnyOrderDoNotDisturbEachOther) {
  const auto replica = MakeReplica();
  std::vector<float> first(gradients_.size()), again(gradients_.size());
  ASSERT_TRUE(replica->ForwardBackward(parameters_, Batch(64), absl::MakeSpan(first), [](int) {}).ok());
  ASSERT_TRUE(replica->ForwardBackward(parameters_, Batch(7), absl::MakeSpan(again), [](int) {}).ok());
  ASSERT_TRUE(replica->Evaluate(parameters_, Batch(1)).ok());
  ASSERT_TRUE(replica->ForwardBackward(parameters_, Batch(64), absl::MakeSpan(again), [](int) {}).ok());
  EXPECT_EQ(std::memcmp(first.data(), again.data(), first.size() * sizeof(float)), 0);
}

TEST_F(ReplicaTest, ABatchWithoutExamplesAnnouncesZeroGradients) {
  int announced = 0;
  const auto result = MakeReplica()->ForwardBackward(parameters_, Batch(0), absl::MakeSpan(gradients_),
                                                     [&](int) { ++announced; });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->sums.examples, 0);
  EXPECT_EQ(result->sums.loss, 0);
  EXPECT_EQ(announced, 10);
  EXPECT_THAT(gradients_, Each(0.0f));
}

TEST_F(ReplicaTest, ALabelOutOfRangeIsRefused) {
  const BatchView batch = Batch(4);
  labels_[2] = 10;
  const auto status =
      MakeReplica()->ForwardBackward(parameters_, batch, absl::MakeSpan(gradients_), [](int) {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("label 10 of example 2"));
}

TEST_F(ReplicaTest, BuffersOfTheWrongSizeAreRefused) {
  const auto replica = MakeReplica();
  BatchView batch = Batch(4);
  batch.examples = 5;
  EXPECT_EQ(replica->Evaluate(parameters_, batch).status().code(), absl::StatusCode::kInvalidArgument);
  const std::vector<float> weights(3);
  batch = Batch(4);
  batch.weights = weights;
  EXPECT_EQ(replica->Evaluate(parameters_, batch).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(replica->Evaluate({}, Batch(4)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(replica->ForwardBackward(parameters_, Batch(4), {}, [](int) {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ReplicaTest, OnADeviceWithItsOwnMemoryTheResultsAreTheSame) {
  kernels::FarDevice far;
  const auto replica = Replica::Create(model_, LossSpec{.from_logits = true}, far).value();
  BatchView batch = Batch(16);
  const std::vector<float> weights(16, 0.5f);
  batch.weights = weights;
  std::vector<float> near_gradients(gradients_.size());
  const auto near_replica = MakeReplica();
  const auto near =
      near_replica->ForwardBackward(parameters_, batch, absl::MakeSpan(near_gradients), [](int) {});
  const auto result = replica->ForwardBackward(parameters_, batch, absl::MakeSpan(gradients_), [](int) {});
  ASSERT_TRUE(near.ok() && result.ok());
  EXPECT_EQ(near->sums.loss, result->sums.loss);
  EXPECT_EQ(gradients_, near_gradients);
  EXPECT_EQ(near->outputs, result->outputs);
  EXPECT_EQ(far.bytes_up(), static_cast<int64_t>(
                                (parameters_.size() + inputs_.size() + labels_.size() + weights.size()) * 4));
  EXPECT_EQ(far.bytes_down(), static_cast<int64_t>((gradients_.size() + result->outputs.size()) * 4));
}

TEST_F(ReplicaTest, GradientsInDeviceMemoryStayThere) {
  kernels::FarDevice far;
  const auto replica = Replica::Create(model_, LossSpec{.from_logits = true}, far).value();
  const absl::Span<float> own = replica->device_gradients();
  ASSERT_EQ(own.size(), gradients_.size());
  const auto step = [&](absl::Span<float> gradients, const BatchView& batch) {
    std::vector<int> announced(model_.variables().size());
    const auto result = replica->ForwardBackward(
        parameters_, batch, gradients, [&](int variable) { ++announced[static_cast<size_t>(variable)]; });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(announced, Each(1));
  };
  for (int time = 0; time < 2; ++time) {  // alternating
    step(absl::MakeSpan(gradients_), Batch(8));
    std::fill(own.begin(), own.end(), 0.0f);
    const int64_t before = far.bytes_down();
    step(own, Batch(8));
    EXPECT_EQ(far.bytes_down() - before, 8 * 10 * 4) << "only the outputs";
    EXPECT_THAT(gradients_, testing::ElementsAreArray(own));
    BatchView none = Batch(8);
    none.examples = 0;
    none.inputs = FloatRows(8, inputs_);
    none.inputs[0] = none.inputs[0].Rows(0, 0);
    none.targets = {};
    step(own, none);
    EXPECT_THAT(own, Each(0.0f));
  }
  EXPECT_TRUE(MakeReplica()->device_gradients().empty());
}

TEST_F(ReplicaTest, UnpinReleasesPinnedMemory) {
  kernels::FarDevice far;
  const auto replica = Replica::Create(model_, LossSpec{.from_logits = true}, far).value();
  ASSERT_TRUE(replica->Pin(parameters_).ok());
  ASSERT_TRUE(replica->Pin(gradients_).ok());
  EXPECT_EQ(far.pinned(), 2);
  const auto step = [&] {
    const auto result =
        replica->ForwardBackward(parameters_, Batch(8), absl::MakeSpan(gradients_), [](int) {});
    ASSERT_TRUE(result.ok()) << result.status();
  };
  step();
  const int of_its_own = far.pinned() - 2;
  const std::vector<float> gradients = gradients_;
  replica->Unpin();
  EXPECT_EQ(far.pinned(), of_its_own);
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);
  step();
  EXPECT_EQ(gradients_, gradients);
}

TEST(Replica, AnOutputThatTheLossCannotTakeIsRefused) {
  const Model model =
      Model::FromJson(SequentialOf(R"({"class_name": "Dense", "config": {"units": 1, "input_shape": [3]}})"),
                      "m")
          .value();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto status = Replica::Create(model, LossSpec{}, *device).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the model's output [1] has only one score"));
}

TEST(Replica, AnImageOfScoresHasALabelForEachPixel) {
  const Model model =
      Model::FromJson(SequentialOf(R"({"class_name": "Conv2D", "config": {"filters": 3, "kernel_size": 1,
                           "input_shape": [2, 2, 1], "kernel_initializer": "zeros"}})"),
                      "m")
          .value();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica = Replica::Create(model, LossSpec{.from_logits = true}, *device).value();
  const std::vector<float> parameters = model.InitialParameters(1), inputs(8),
                           labels = {0, 1, 2, 0, 1, 2, 0, 1};
  const auto result =
      replica->Evaluate(parameters, {.examples = 2, .inputs = FloatRows(2, inputs), .targets = labels});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->sums.loss, 2 * std::log(3.0), 1e-6) << "the mean over the pixels, summed over examples";
  EXPECT_EQ(result->outputs.size(), 24u);
}

TEST(Replica, ABlockedLastLayerIsFlattenedCorrectly) {
  // Conv2D to 1x1, flattened: the output of the last convolution must be converted from its blocked layout.
  const Model model =
      Model::FromJson(
          SequentialOf(
              R"({"class_name": "Conv2D", "config": {"filters": 3, "kernel_size": 2, "input_shape": [2, 2, 16],
                       "kernel_initializer": "ones"}}, {"class_name": "Flatten"})"),
          "m")
          .value();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica = Replica::Create(model, LossSpec{.from_logits = true}, *device).value();
  std::vector<float> parameters = model.InitialParameters(1);
  parameters[parameters.size() - 3] = 1;  // biases 1, 2, 0: the second class has the largest score
  parameters[parameters.size() - 2] = 2;
  const std::vector<float> inputs(64, 0.25f);
  const std::vector<float> labels = {1};
  const auto result =
      replica->Evaluate(parameters, {.examples = 1, .inputs = FloatRows(1, inputs), .targets = labels});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(std::vector<float>(result->outputs.begin(), result->outputs.end()),
              ElementsAre(FloatNear(17, 1e-5f), FloatNear(18, 1e-5f), FloatNear(16, 1e-5f)));
  EXPECT_NEAR(result->sums.loss, std::log(std::exp(-1.0) + 1 + std::exp(-2.0)), 1e-6);
}

}  // namespace
}  // namespace cairn::nn
