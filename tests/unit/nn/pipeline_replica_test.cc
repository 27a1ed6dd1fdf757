#include "nn/pipeline/pipeline_replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/model_inputs.h"
#include "tests/unit/nn/several_devices.h"

namespace cairn::nn {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class PipelineReplicaTest : public testing::Test {
 protected:
  void Load(const char* json) { model_ = std::make_unique<Model>(Model::FromJson(json, "m").value()); }
  std::unique_ptr<Replica> Alone() { return Replica::Create(*model_, kLogits, *device_).value(); }
  // Places each layer on the device given in `places` by name; other layers are placed in turn.
  std::unique_ptr<Replica> Divided(const Devices& devices, int64_t micro_batches,
                                   const std::map<std::string, int>& places = {}) {
    std::vector<int> device_of;
    std::map<std::string, int> known = places;
    for (const Node& node : model_->nodes()) {
      const auto count = static_cast<int>(known.size());
      const auto [place, fresh] = known.try_emplace(node.layer->name(), 0);
      if (fresh) place->second = count % static_cast<int>(devices.pointers().size());
      device_of.push_back(place->second);
    }
    return MakePipelineReplica({.model = *model_,
                                .objective = kLogits,
                                .threads = devices.pointers(),
                                .locations = PipelineLocations::OfDevices(device_of),
                                .micro_batches = micro_batches})
        .value();
  }

  std::unique_ptr<Model> model_;
  const std::unique_ptr<kernels::Device> device_ = kernels::CreateCpuDevice(0, 1).value();
};

class PipelineOnDevices : public PipelineReplicaTest, public testing::WithParamInterface<const char*> {};

TEST_P(PipelineOnDevices, AStepMatchesOneDevice) {
  const Devices devices(GetParam());
  for (const char* json : {kSmallCnn, kMlp, kGraph}) {
    Load(json);
    const auto alone = Alone();
    const std::vector<float> parameters = model_->InitialParameters(1);
    for (const int64_t micro_batches : {1, 3, 4}) {
      const auto divided = Divided(devices, micro_batches);
      for (const int64_t count : {12, 7, 1, 12}) {
        const Examples examples(*model_, count);
        ExpectSameStep(RunStep(*divided, *model_, parameters, examples.Batch()),
                       RunStep(*alone, *model_, parameters, examples.Batch()), 1e-6f);
        ExpectSameStep(RunStep(*divided, *model_, parameters, examples.Weighted()),
                       RunStep(*alone, *model_, parameters, examples.Weighted()), 1e-6f);
      }
    }
  }
}

TEST_P(PipelineOnDevices, TwentyStepsMatchOneDevice) {
  const Devices devices(GetParam());
  for (const char* json : {kSmallCnn, kMlp, kGraph}) {
    Load(json);
    const Examples examples(*model_, 12);
    const auto alone = Alone(), divided = Divided(devices, 4);
    ExpectNear(Train(*divided, *model_, examples, 20), Train(*alone, *model_, examples, 20), 1e-5f,
               "parameter");
  }
}

TEST_P(PipelineOnDevices, EvaluationMatchesOneDevice) {
  const Devices devices(GetParam());
  for (const char* json : {kSmallCnn, kNormalized, kGraph}) {
    Load(json);
    const Examples examples(*model_, 7);
    const auto alone = Alone(), divided = Divided(devices, 3);
    const std::vector<float> parameters = model_->InitialParameters(1);
    RunStep(*divided, *model_, parameters, examples.Batch());
    const auto expected = alone->Evaluate(parameters, examples.Batch());
    const auto got = divided->Evaluate(parameters, examples.Batch());
    ASSERT_TRUE(got.ok() && expected.ok()) << got.status();
    EXPECT_NEAR(got->sums.loss, expected->sums.loss, 1e-5);
    EXPECT_EQ(got->sums.examples, 7);
    ExpectNear(got->outputs, expected->outputs, 1e-6f, "output");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, PipelineOnDevices, testing::Values("n", "nn", "nnn", "ff", "nf", "fn"));

TEST_F(PipelineReplicaTest, OneMicroBatchGivesTheBitsOfOneDevice) {
  const Devices devices("nn");
  for (const char* json : {kMlp, kGraph, kNormalized}) {
    Load(json);
    const Examples examples(*model_, 12);
    EXPECT_EQ(Train(*Divided(devices, 1), *model_, examples, 5), Train(*Alone(), *model_, examples, 5));
  }
}

TEST_F(PipelineReplicaTest, TwoRunsGiveTheSameBitsRegardlessOfDeviceSpeed) {
  const Devices devices("nnn");
  for (const char* json : {kSmallCnn, kGraph}) {
    Load(json);
    const Examples examples(*model_, 11);
    EXPECT_EQ(Train(*Divided(devices, 4), *model_, examples, 8),
              Train(*Divided(devices, 4), *model_, examples, 8));
  }
}

TEST_F(PipelineReplicaTest, StatisticsAreTheWeightedMeansOfTheMicroBatches) {
  Load(R"({"config": {"layers": [
      {"class_name": "BatchNormalization", "config": {"name": "norm", "input_shape": [2]}},
      {"class_name": "Dense", "config": {"name": "dense", "units": 2}}]}})");
  // Channel 0: 0 2 | 7, means 1 and 7, variances 1 and 0. Channel 1 is always 1.
  const std::vector<float> inputs = {0, 1, 2, 1, 7, 1}, labels = {0, 1, 0};
  for (const char* kinds : {"nn", "ff"}) {
    const Devices devices(kinds);
    const StepResult step = RunStep(*Divided(devices, 2), *model_, model_->InitialParameters(1),
                                    {.examples = 3, .inputs = FloatRows(3, inputs), .targets = labels});
    ExpectNear(absl::MakeConstSpan(step.gradients).subspan(4, 4), {3, 1, 2.0f / 3, 0}, 1e-6f, "statistic");
  }
}

TEST_F(PipelineReplicaTest, TheGradientIsThatOfTheWholeBatchsMean) {
  // y = w2 w1 x, w1 = w2 = 1, squared error against 0: both gradients are the mean of 2 x^2. Three
  // micro-batches of 2, 2 and 1 examples.
  Load(R"({"config": {"layers": [
      {"class_name": "Dense", "config": {"name": "a", "units": 1, "input_shape": [1], "use_bias": false,
                                         "kernel_initializer": "ones"}},
      {"class_name": "Dense", "config": {"name": "b", "units": 1, "use_bias": false,
                                         "kernel_initializer": "ones"}}]}})");
  const Devices devices("nn");
  const auto divided =
      MakePipelineReplica({.model = *model_,
                           .objective = LossSpec{.kind = kernels::LossKind::kMeanSquaredError},
                           .threads = devices.pointers(),
                           .locations = PipelineLocations::OfDevices({0, 1}),
                           .micro_batches = 3})
          .value();
  const std::vector<float> inputs = {1, 2, 3, 4, 5}, targets(5);
  const StepResult step = RunStep(*divided, *model_, std::vector<float>{1, 1},
                                  {.examples = 5, .inputs = FloatRows(5, inputs), .targets = targets});
  EXPECT_FLOAT_EQ(step.gradients[0], 22);
  EXPECT_FLOAT_EQ(step.gradients[1], 22);
  EXPECT_EQ(step.loss, 55);
}

TEST_F(PipelineReplicaTest, ADeviceWithItsOwnMemoryStoresOnlyItsLayersVariables) {
  Load(kMlp);
  std::vector<kernels::FarDevice*> far;
  std::vector<std::unique_ptr<DeviceThread>> threads;
  for (int i = 0; i < 2; ++i) {
    threads.push_back(DeviceThread::Start("far", [&] {
                        auto device = std::make_unique<kernels::FarDevice>();
                        far.push_back(device.get());
                        return absl::StatusOr<std::unique_ptr<kernels::Device>>(std::move(device));
                      }).value());
  }
  DeviceThread* const pointers[] = {threads[0].get(), threads[1].get()};
  const auto divided = MakePipelineReplica({.model = *model_,
                                            .objective = kLogits,
                                            .threads = pointers,
                                            .locations = PipelineLocations::OfDevices({0, 1, 1, 1}),
                                            .micro_batches = 2})
                           .value();
  const Examples examples(*model_, 4);
  RunStep(*divided, *model_, model_->InitialParameters(1), examples.Batch());
  // Up: layer a's 12 x 16 + 16 values, the inputs, and the gradients of a's outputs.
  EXPECT_EQ(far[0]->bytes_up(), 4 * (12 * 16 + 16 + 4 * 12 + 4 * 16));
  // Down: the gradients and outputs of layer a.
  EXPECT_EQ(far[0]->bytes_down(), 4 * (12 * 16 + 16 + 4 * 16));
}

TEST_F(PipelineReplicaTest, ABatchWithoutExamplesAnnouncesZeroGradients) {
  Load(kMlp);
  const Devices devices("nn");
  const StepResult step = RunStep(*Divided(devices, 2), *model_, model_->InitialParameters(1), {});
  EXPECT_THAT(step.gradients, Each(0.0f));
  EXPECT_THAT(step.announced, Each(1));
}

TEST_F(PipelineReplicaTest, AnErrorOnOneDeviceStopsAllAndTheNextStepWorks) {
  Load(kMlp);
  const Devices devices("nn");
  const auto divided = Divided(devices, 3);
  Examples examples(*model_, 6);
  const std::vector<float> parameters = model_->InitialParameters(1);
  examples.labels()[3] = 9;
  std::vector<float> gradients(parameters.size());
  const auto status =
      divided->ForwardBackward(parameters, examples.Batch(), absl::MakeSpan(gradients), [](int) {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("from example 2 on: label 9 of example 1"));
  examples.labels()[3] = 0;
  ExpectSameStep(RunStep(*divided, *model_, parameters, examples.Batch()),
                 RunStep(*Alone(), *model_, parameters, examples.Batch()), 1e-6f);
}

TEST_F(PipelineReplicaTest, BuffersOfTheWrongSizeAreRefused) {
  Load(kMlp);
  const Devices devices("nn");
  const auto divided = Divided(devices, 2);
  const Examples examples(*model_, 6);
  BatchView batch = examples.Batch();
  batch.examples = 5;
  const std::vector<float> parameters = model_->InitialParameters(1);
  EXPECT_EQ(divided->Evaluate(parameters, batch).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(divided->Evaluate({}, examples.Batch()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(divided->ForwardBackward(parameters, examples.Batch(), {}, [](int) {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn::nn
