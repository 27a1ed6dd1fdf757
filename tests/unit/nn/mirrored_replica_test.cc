#include "nn/replica/mirrored_replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_device_group.h"
#include "tests/support/model_inputs.h"
#include "tests/unit/nn/several_devices.h"

namespace cairn::nn {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class MirroredReplicaTest : public testing::Test {
 protected:
  void Load(const char* json) { model_ = std::make_unique<Model>(Model::FromJson(json, "m").value()); }
  std::unique_ptr<Replica> Alone() { return Replica::Create(*model_, kLogits, *device_).value(); }
  std::unique_ptr<Replica> Over(const Devices& devices) {
    return MakeMirroredReplica(*model_, kLogits, devices.pointers()).value();
  }
  // A replica whose devices add up the gradients themselves.
  std::unique_ptr<Replica> OverGroup(const Devices& devices) {
    return MakeMirroredReplica(*model_, kLogits, devices.pointers(),
                               {.group = std::make_unique<kernels::FakeDeviceGroup>(log_)})
        .value();
  }
  std::vector<size_t> Begun() {
    MutexLock lock(log_.mutex);
    return std::exchange(log_.begun, {});
  }
  int UnderWay() {
    MutexLock lock(log_.mutex);
    return log_.under_way;
  }
  void SetFault(const absl::Status& fault) {
    MutexLock lock(log_.mutex);
    log_.fault = fault;
  }

  // Requires a model of the MLP's inputs and classes, and two devices.
  void ExpectAFaultThenAStep(Replica& mirrored, float tolerance = 1e-6f) {
    Examples examples(*model_, 6);
    const std::vector<float> parameters = model_->InitialParameters(1);
    examples.labels()[4] = 9;
    std::vector<float> gradients(parameters.size());
    const auto status =
        mirrored.ForwardBackward(parameters, examples.Batch(), absl::MakeSpan(gradients), [](int) {})
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("from example 3 on: label 9 of example 1"));
    EXPECT_EQ(UnderWay(), 0) << "a sum still reads memory that the next step writes";
    examples.labels()[4] = 0;
    ExpectSameStep(RunStep(mirrored, *model_, parameters, examples.Batch()),
                   RunStep(*Alone(), *model_, parameters, examples.Batch()), tolerance);
  }

  std::unique_ptr<Model> model_;
  const std::unique_ptr<kernels::Device> device_ = kernels::CreateCpuDevice(0, 1).value();
  kernels::FakeDeviceGroup::Log log_;
};

class MirroredOnDevices : public MirroredReplicaTest, public testing::WithParamInterface<const char*> {};

TEST_P(MirroredOnDevices, AStepMatchesOneReplicaOnTheWholeBatch) {
  const Devices devices(GetParam());
  for (const char* json : {kSmallCnn, kMlp, kGraph}) {
    Load(json);
    const auto alone = Alone(), mirrored = Over(devices);
    const std::vector<float> parameters = model_->InitialParameters(1);
    for (const int64_t count : {12, 7, 2, 1, 12}) {
      const Examples examples(*model_, count);
      ExpectSameStep(RunStep(*mirrored, *model_, parameters, examples.Batch()),
                     RunStep(*alone, *model_, parameters, examples.Batch()), 1e-6f);
      ExpectSameStep(RunStep(*mirrored, *model_, parameters, examples.Weighted()),
                     RunStep(*alone, *model_, parameters, examples.Weighted()), 1e-6f);
    }
  }
}

TEST_P(MirroredOnDevices, SynchronizedNormalizationMatchesOneReplicaOnTheWholeBatch) {
  const Devices devices(GetParam());
  for (const char* json : {kSynchronized, kSynchronizedCnn}) {
    Load(json);
    const auto alone = Alone(), mirrored = Over(devices);
    const std::vector<float> parameters = model_->InitialParameters(1);
    for (const int64_t count : {12, 7, 3, 12}) {
      const Examples examples(*model_, count);
      ExpectSameStep(RunStep(*mirrored, *model_, parameters, examples.Weighted()),
                     RunStep(*alone, *model_, parameters, examples.Weighted()), 2e-5f);
    }
    const Examples examples(*model_, 12);
    ExpectNear(Train(*mirrored, *model_, examples, 10), Train(*alone, *model_, examples, 10), 1e-4f,
               "parameter");
  }
}

TEST_P(MirroredOnDevices, TwentyStepsMatchOneReplica) {
  const Devices devices(GetParam());
  for (const char* json : {kSmallCnn, kMlp, kGraph}) {
    Load(json);
    const Examples examples(*model_, 12);
    const auto alone = Alone(), mirrored = Over(devices);
    ExpectNear(Train(*mirrored, *model_, examples, 20), Train(*alone, *model_, examples, 20), 1e-5f,
               "parameter");
  }
}

TEST_P(MirroredOnDevices, EvaluationMatchesOneReplica) {
  const Devices devices(GetParam());
  Load(kSmallCnn);
  const Examples examples(*model_, 7);
  const auto alone = Alone(), mirrored = Over(devices);
  const std::vector<float> parameters = model_->InitialParameters(1);
  const auto expected = alone->Evaluate(parameters, examples.Batch());
  const auto got = mirrored->Evaluate(parameters, examples.Batch());
  ASSERT_TRUE(got.ok() && expected.ok()) << got.status();
  EXPECT_NEAR(got->sums.loss, expected->sums.loss, 1e-5);
  EXPECT_EQ(got->sums.examples, 7);
  ExpectNear(got->outputs, expected->outputs, 1e-6f, "output");
}

INSTANTIATE_TEST_SUITE_P(Devices, MirroredOnDevices, testing::Values("n", "nn", "nnn", "ff", "nf"));

TEST_F(MirroredReplicaTest, OneDeviceGivesTheBitsOfAPlainReplica) {
  Load(kSmallCnn);
  const Devices devices("n");
  const Examples examples(*model_, 12);
  const auto alone = Alone(), mirrored = Over(devices);
  EXPECT_EQ(Train(*mirrored, *model_, examples, 5), Train(*alone, *model_, examples, 5));
}

TEST_F(MirroredReplicaTest, TwoRunsGiveTheSameBits) {
  Load(kSmallCnn);
  const Devices devices("nnn");
  const Examples examples(*model_, 11);
  const auto first = Over(devices), second = Over(devices);
  EXPECT_EQ(Train(*first, *model_, examples, 5), Train(*second, *model_, examples, 5));
}

TEST_F(MirroredReplicaTest, TheMeanIsExactIfArithmeticIsExact) {
  // One weight, squared error: the gradient is 2 (w x - t) x, and w = 0. Of five examples, the first device
  // has three and the second two. Their means are -2 (1 + 4 + 9) / 3 and -2 (16 + 25) / 2; the mean of all is
  // -2 * 55 / 5.
  Load(R"({"config": {"layers": [{"class_name": "Dense", "config": {"units": 1, "input_shape": [1],
          "use_bias": false, "kernel_initializer": "zeros"}}]}})");
  const Devices devices("nn");
  const auto mirrored =
      MakeMirroredReplica(*model_, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, devices.pointers())
          .value();
  const std::vector<float> inputs = {1, 2, 3, 4, 5};
  const StepResult step = RunStep(*mirrored, *model_, std::vector<float>{0},
                                  {.examples = 5, .inputs = FloatRows(5, inputs), .targets = inputs});
  EXPECT_FLOAT_EQ(step.gradients[0], -22);
  EXPECT_EQ(step.loss, 55);
}

TEST_F(MirroredReplicaTest, StatisticsAreTheMeansOfTheDevicesStatistics) {
  Load(R"({"config": {"layers": [{"class_name": "BatchNormalization", "config": {"input_shape": [2]}}]}})");
  const Devices devices("nn");
  const auto mirrored = Over(devices);
  // Channel 0: 0 2 | 4 8, means 1 and 6, variances 1 and 4. Channel 1 is always 1.
  const std::vector<float> inputs = {0, 1, 2, 1, 4, 1, 8, 1}, labels = {0, 1, 0, 1};
  const StepResult step = RunStep(*mirrored, *model_, model_->InitialParameters(1),
                                  {.examples = 4, .inputs = FloatRows(4, inputs), .targets = labels});
  const absl::Span<const float> statistics = absl::MakeConstSpan(step.gradients).subspan(4);
  EXPECT_THAT(statistics, ::testing::ElementsAre(3.5f, 1, 2.5f, 0));
}

TEST_F(MirroredReplicaTest, ABatchWithoutExamplesAnnouncesZeroGradients) {
  Load(kMlp);
  const Devices devices("nn");
  const StepResult step = RunStep(*Over(devices), *model_, model_->InitialParameters(1), {});
  EXPECT_THAT(step.gradients, Each(0.0f));
  EXPECT_THAT(step.announced, Each(1));
}

TEST_F(MirroredReplicaTest, AnErrorOnOneDeviceIsReportedAndTheNextStepWorks) {
  const Devices devices("nn");
  Load(kMlp);
  ExpectAFaultThenAStep(*Over(devices));
}

TEST_F(MirroredReplicaTest, AnErrorOnOneDeviceEndsTheSynchronizedStepOfTheOthers) {
  const Devices devices("nf");
  Load(kSynchronized);
  ExpectAFaultThenAStep(*Over(devices), 2e-5f);
}

class MirroredOverGroup : public MirroredReplicaTest, public testing::WithParamInterface<const char*> {};

TEST_P(MirroredOverGroup, AStepMatchesOneReplicaOnTheWholeBatch) {
  const Devices devices(GetParam());
  for (const char* json : {kSmallCnn, kMlp, kGraph}) {
    Load(json);
    const auto alone = Alone(), mirrored = OverGroup(devices);
    const std::vector<float> parameters = model_->InitialParameters(1);
    for (const int64_t count : {12, 7, 2, 1, 12}) {  // also fewer than devices
      const Examples examples(*model_, count);
      ExpectSameStep(RunStep(*mirrored, *model_, parameters, examples.Batch()),
                     RunStep(*alone, *model_, parameters, examples.Batch()), 1e-6f);
      ExpectSameStep(RunStep(*mirrored, *model_, parameters, examples.Weighted()),
                     RunStep(*alone, *model_, parameters, examples.Weighted()), 1e-6f);
      EXPECT_EQ(UnderWay(), 0);
    }
  }
}

TEST_P(MirroredOverGroup, TwentyStepsMatchTheHostsSums) {
  const Devices devices(GetParam());
  for (const char* json : {kSmallCnn, kGraph, kNormalized}) {
    Load(json);
    const Examples examples(*model_, 12);
    const auto by_host = Over(devices), by_group = OverGroup(devices);
    ExpectNear(Train(*by_group, *model_, examples, 20), Train(*by_host, *model_, examples, 20), 1e-5f,
               "parameter");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MirroredOverGroup, testing::Values("f", "ff", "fff"));

TEST_F(MirroredReplicaTest, AGroupSumsBucketsAndOneGradientIsCopiedToTheHost) {
  // 4 x 1000 + 1000, 1000 x 1100 + 1100, 1100 x 3 + 3 parameters: the last two layers fill a bucket of a
  // million.
  Load(R"({"config": {"layers": [{"class_name": "Dense", "config": {"units": 1000, "input_shape": [4]}},
          {"class_name": "Dense", "config": {"units": 1100}}, {"class_name": "Dense", "config": {"units": 3}}]}})");
  const Devices devices("ff");
  const auto mirrored = OverGroup(devices);
  const Examples examples(*model_, 4);
  const StepResult step = RunStep(*mirrored, *model_, model_->InitialParameters(1), examples.Batch());
  EXPECT_THAT(step.announced, Each(1));
  EXPECT_THAT(Begun(), UnorderedElementsAre(0, 1));
  // A device itself copies only outputs: two examples of three classes.
  for (DeviceThread* const thread : devices.pointers()) {
    EXPECT_EQ(static_cast<const kernels::FarDevice&>(thread->device()).bytes_down(), 2 * 3 * 4);
  }
}

TEST_F(MirroredReplicaTest, AFailedGroupEndsTheStepWithoutAnnouncements) {
  Load(kMlp);
  const Devices devices("ff");
  const auto mirrored = OverGroup(devices);
  const Examples examples(*model_, 6);
  const std::vector<float> parameters = model_->InitialParameters(1);
  std::vector<float> gradients(parameters.size());
  std::vector<int> told;
  const absl::Status fault = absl::InternalError("ncclReduce on /gpu:1: unhandled cuda error");
  SetFault(fault);
  EXPECT_EQ(mirrored
                ->ForwardBackward(parameters, examples.Batch(), absl::MakeSpan(gradients),
                                  [&](int variable) { told.push_back(variable); })
                .status(),
            fault);
  EXPECT_THAT(told, IsEmpty());
  EXPECT_EQ(UnderWay(), 0);
}

TEST_F(MirroredReplicaTest, AnErrorOnOneDeviceOfAGroupIsReportedAndTheNextStepWorks) {
  const Devices devices("ff");
  Load(kMlp);
  ExpectAFaultThenAStep(*OverGroup(devices));
}

}  // namespace
}  // namespace cairn::nn
