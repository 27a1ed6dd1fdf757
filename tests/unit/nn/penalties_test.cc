// Penalties that layers add to the loss: activity regularizers, and the divergence of samples.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/device.h"
#include "kernels/cuda/device.h"
#include "nn/objective.h"
#include "nn/pipeline/pipeline_replica.h"
#include "nn/replica/mirrored_replica.h"
#include "nn/replica/replica.h"
#include "nn/replica/variable_penalty.h"
#include "tests/unit/nn/models.h"
#include "tests/unit/nn/several_devices.h"

namespace cairn::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As Keras 3.15 writes it, without the fields that are null.
constexpr char kPenalized[] = R"({"class_name": "Sequential", "config": {"layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 5]}},
    {"module": "keras.layers", "class_name": "Dense", "config": {"name": "a", "units": 6, "activation": "relu",
      "activity_regularizer": {"module": "keras.regularizers", "class_name": "L2", "config": {"l2": 0.1},
                               "registered_name": null}}},
    {"class_name": "ActivityRegularization", "config": {"name": "r", "l1": 0.05, "l2": 0.02}},
    {"class_name": "Dense", "config": {"name": "b", "units": 3, "activation": "softmax",
      "activity_regularizer": {"class_name": "L1L2", "config": {"l1": 0.03, "l2": 0.5}}}}]}})";

constexpr char kVae[] = R"({"class_name": "Functional", "config": {"name": "vae", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 5]}, "inbound_nodes": []},
    {"class_name": "Dense", "config": {"name": "h", "units": 4, "activation": "tanh"}, "inbound_nodes": [["x"]]},
    {"class_name": "Dense", "config": {"name": "mean", "units": 2}, "inbound_nodes": [["h"]]},
    {"class_name": "Dense", "config": {"name": "log_var", "units": 2}, "inbound_nodes": [["h"]]},
    {"class_name": "Sampling", "config": {"name": "z", "kl_weight": 0.3},
     "inbound_nodes": [["mean", "log_var"]]},
    {"class_name": "Dense", "config": {"name": "out", "units": 3}, "inbound_nodes": [["z"]]}],
    "input_layers": [["x", 0, 0]], "output_layers": [["out", 0, 0]]}})";

const LossSpec kSparse = {}, kSquared = {.kind = kernels::LossKind::kMeanSquaredError};

// The examples and the parameters of a program with Keras 3.15, whose numbers the tests expect.
struct PenaltyExamples {
  std::vector<float> x, targets, weights, parameters;

  explicit PenaltyExamples(const Model& model) {
    for (int i = 0; i < 20; ++i) x.push_back(static_cast<float>(std::cos(i)));
    for (int64_t i = 0; i < model.num_parameters(); ++i)
      parameters.push_back(static_cast<float>(0.5 * std::sin(static_cast<double>(1 + i))));
  }
  static PenaltyExamples OfClasses(const Model& model) {
    PenaltyExamples examples(model);
    examples.targets = {0, 2, 1, 2};
    examples.weights = {1, 0.5f, 2, 1};
    return examples;
  }
  static PenaltyExamples OfNumbers(const Model& model) {
    PenaltyExamples examples(model);
    for (int i = 0; i < 12; ++i) examples.targets.push_back(static_cast<float>(std::sin(i)));
    return examples;
  }
  BatchView batch() const {
    BatchView view = {.examples = 4, .targets = targets, .weights = weights, .seed = 7};
    view.inputs.push_back({DType::kFloat32, {4, 5}, x.data()});
    return view;
  }
};

// Several devices, and micro-batches that pass from device to device, compute the step of one device.
void ExpectSameStepOnSeveralDevices(const Model& model, const LossSpec& loss,
                                    const PenaltyExamples& examples) {
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const StepResult alone =
      RunStep(*Replica::Create(model, loss, *device).value(), model, examples.parameters, examples.batch());
  Devices devices("nf");
  std::vector<int> device_of(model.nodes().size(), 1);
  device_of[0] = 0;
  std::vector<std::unique_ptr<Replica>> replicas;
  replicas.push_back(MakeMirroredReplica(model, loss, devices.pointers()).value());
  replicas.push_back(MakePipelineReplica({.model = model,
                                          .objective = loss,
                                          .threads = devices.pointers(),
                                          .locations = PipelineLocations::OfDevices(device_of),
                                          .micro_batches = 3})
                         .value());
  for (const auto& replica : replicas) {
    ExpectSameStep(RunStep(*replica, model, examples.parameters, examples.batch()), alone, 2e-6f);
    const auto one = Replica::Create(model, loss, *device).value();
    EXPECT_NEAR(replica->Evaluate(examples.parameters, examples.batch()).value().sums.loss,
                one->Evaluate(examples.parameters, examples.batch()).value().sums.loss, 1e-5);
  }
}

// Steps of SGD(0.125) on the CPU and on the stand-in for CUDA have these losses, and so do evaluations before them.
void ExpectLosses(const char* json, const std::vector<double>& losses) {
  const Model model = Model::FromJson(json, "m").value();
  std::vector<std::unique_ptr<kernels::Device>> devices;
  devices.push_back(kernels::CreateCpuDevice(0, 1).value());
  devices.push_back(kernels::cuda::CreateDevice({.precision = kernels::Precision::kFloat32}).value());
  for (const auto& device : devices) {
    const auto replica = Replica::Create(model, kSparse, *device).value();
    PenaltyExamples examples = PenaltyExamples::OfClasses(model);
    std::vector<float> gradients(examples.parameters.size());
    for (const double expected : losses) {
      const auto evaluated = replica->Evaluate(examples.parameters, examples.batch()).value();
      EXPECT_NEAR(evaluated.sums.loss / 4, expected, 2e-6);
      const auto step =
          replica
              ->ForwardBackward(examples.parameters, examples.batch(), absl::MakeSpan(gradients), [](int) {})
              .value();
      EXPECT_NEAR(step.sums.loss / 4, expected, 2e-6);
      for (size_t i = 0; i < gradients.size(); ++i) examples.parameters[i] -= 0.125f * gradients[i];
    }
  }
}

// Keras 3.15 on PyTorch: m.evaluate(x, y, sample_weight=w, batch_size=4), m.train_on_batch(x, y, sample_weight=w) with
// SGD(0.125).
TEST(ActivityRegularizer, StepsAreThoseOfKeras) {
  ExpectLosses(kPenalized, {1.7117151022, 1.6277874708, 1.5634685755});
}

// As Keras 3.15 writes it, without the fields that are null.
constexpr char kOrthogonal[] = R"({"class_name": "Sequential", "config": {"layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 5]}},
    {"module": "keras.layers", "class_name": "Dense", "config": {"name": "a", "units": 4, "activation": "tanh",
      "kernel_regularizer": {"module": "keras.regularizers", "class_name": "OrthogonalRegularizer",
                             "config": {"factor": 0.5, "mode": "rows"}, "registered_name": null}}},
    {"class_name": "Dense", "config": {"name": "b", "units": 3, "activation": "softmax",
      "kernel_regularizer": {"class_name": "OrthogonalRegularizer",
                             "config": {"factor": 0.25, "mode": "columns"}}}}]}})";

// Keras 3.15 on JAX: m.train_on_batch(x, y, sample_weight=w) with SGD(0.125).
TEST(OrthogonalRegularizer, StepsAreThoseOfKeras) {
  ExpectLosses(kOrthogonal, {1.7955676317, 1.7433753014, 1.6940248013});
}

// jax.value_and_grad(keras.regularizers.OrthogonalRegularizer(0.5, mode))(w) of Keras 3.15.
TEST(OrthogonalRegularizer, GradientsAreThoseOfKeras) {
  struct Expected {
    const char* mode;
    double penalty;
    std::vector<float> gradient;
  };
  const Expected cases[] = {
      {"rows",
       0.4850060045719147,
       {-0.0508742f, 0.03355631f, 0.0871353f, 0.01986797f, -0.007522464f, -0.02799675f, 0.02274467f,
        -0.003881991f, -0.02693954f, -0.07399923f, 0.000348866f, 0.07437623f}},
      {"columns",
       0.45973625779151917,
       {-0.09977807f, -0.02043521f, 0.3257528f, 0.02442683f, 0.007210687f, -0.1631474f, 0.05141336f,
        0.006158173f, -0.002723366f, -0.1262245f, -0.01940377f, 0.1685396f}}};
  std::vector<float> weights;
  for (int i = 0; i < 12; ++i) weights.push_back(static_cast<float>(0.5 * std::sin(1.0 + i)));
  std::vector<std::unique_ptr<kernels::Device>> devices;
  devices.push_back(kernels::CreateCpuDevice(0, 1).value());
  devices.push_back(kernels::cuda::CreateDevice({.precision = kernels::Precision::kFloat32}).value());
  for (const auto& device : devices) {
    for (const Expected& expected : cases) {
      const auto penalty =
          VariablePenalty::Create({.orthogonal = 0.5f, .of_columns = std::string(expected.mode) == "columns"},
                                  {4, 3}, *device)
              .value();
      const auto w = device->Allocate(13, "w").value(), gradient = device->Allocate(13, "gradient").value();
      ASSERT_TRUE(device->CopyToDevice(weights.data(), w->data() + 1, 12 * sizeof(float)).ok());
      for (float* const to : {gradient->data() + 1, static_cast<float*>(nullptr)}) {
        ASSERT_TRUE(penalty->Run(w->data() + 1, to).ok());
        ASSERT_TRUE(device->Synchronize().ok());
        EXPECT_NEAR(penalty->penalty(), expected.penalty, 1e-6);
      }
      std::vector<float> result(13);
      ASSERT_TRUE(device->CopyToHost(gradient->data(), result.data(), 13 * sizeof(float)).ok());
      ASSERT_TRUE(device->Synchronize().ok());
      EXPECT_EQ(result[0], 0);
      for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(result[1 + i], expected.gradient[i], 1e-6) << expected.mode;
    }
  }
}

TEST(OrthogonalRegularizer, SeveralDevicesGiveTheStepOfOne) {
  const Model model = Model::FromJson(kOrthogonal, "m").value();
  ExpectSameStepOnSeveralDevices(model, kSparse, PenaltyExamples::OfClasses(model));
}

TEST(ActivityRegularizer, SeveralDevicesGiveTheStepOfOne) {
  const Model model = Model::FromJson(kPenalized, "m").value();
  ExpectSameStepOnSeveralDevices(model, kSparse, PenaltyExamples::OfClasses(model));
}

TEST(ActivityRegularizer, IsNoLayerOfItsOwn) {
  const Model model = Model::FromJson(kPenalized, "m").value();
  EXPECT_THAT(LayerNames(model), ElementsAre("a", "a", "r", "b", "b"));
  ASSERT_EQ(model.rows().size(), 3u);
  EXPECT_EQ(model.rows()[2].name, "b");
  EXPECT_EQ(model.outputs()[0].name, "b");
}

TEST(ActivityRegularizer, TakesTheOutputOfAnyLayer) {
  // Smooth functions of the variables: of images in the layout of a convolution, a view, and a recurrent layer.
  const Model model = Model::FromJson(SequentialOf(R"(
      {"class_name": "Conv2D", "config": {"name": "c", "filters": 4, "kernel_size": 2, "activation": "sigmoid",
        "input_shape": [4, 4, 1], "activity_regularizer": "l2"}},
      {"class_name": "AveragePooling2D", "config": {"name": "p", "activity_regularizer": "l1"}},
      {"class_name": "Reshape", "config": {"name": "r", "target_shape": [1, 4], "activity_regularizer": "l1"}},
      {"class_name": "LSTM", "config": {"name": "l", "units": 3, "activity_regularizer": "l1"}})"),
                                      "m")
                          .value();
  const Model bare = Model::FromJson(SequentialOf(R"(
      {"class_name": "Conv2D", "config": {"name": "c", "filters": 4, "kernel_size": 2, "activation": "sigmoid",
        "input_shape": [4, 4, 1]}},
      {"class_name": "AveragePooling2D", "config": {"name": "p"}},
      {"class_name": "Reshape", "config": {"name": "r", "target_shape": [1, 4]}},
      {"class_name": "LSTM", "config": {"name": "l", "units": 3}})"),
                                     "m")
                         .value();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const Examples examples(model, 5);
  const std::vector<float> parameters = model.InitialParameters(1);
  const auto loss_of = [&](const Model& of, absl::Span<const float> at) {
    return Replica::Create(of, kLogits, *device).value()->Evaluate(at, examples.Batch()).value().sums.loss /
           5;
  };
  EXPECT_GT(loss_of(model, parameters), loss_of(bare, parameters) + 1e-4);
  // The gradient is that of the loss with all penalties.
  const auto replica = Replica::Create(model, kLogits, *device).value();
  const StepResult step = RunStep(*replica, model, parameters, examples.Batch());
  EXPECT_NEAR(step.loss / 5, loss_of(model, parameters), 1e-6);
  for (size_t i = 0; i < parameters.size(); i += 7) {
    std::vector<float> moved = parameters;
    constexpr float kStep = 1e-2f;
    moved[i] = parameters[i] + kStep;
    const double high = loss_of(model, moved);
    moved[i] = parameters[i] - kStep;
    EXPECT_NEAR(step.gradients[i], (high - loss_of(model, moved)) / (2 * double{kStep}), 1e-3) << i;
  }
}

TEST(ActivityRegularizer, IsRefusedWhereItsPenaltyWouldBeLost) {
  EXPECT_THAT(ModelFault(SequentialOf(
                  R"({"class_name": "TimeDistributed", "config": {"name": "t", "input_shape": [4, 3],
      "layer": {"class_name": "Dense", "config": {"name": "d", "units": 2, "activity_regularizer": "l2"}}}})")),
              HasSubstr("activity_regularizer: \"l2\" is not supported"));
  EXPECT_THAT(ModelFault(SequentialOf(
                  R"({"class_name": "TimeDistributed", "config": {"name": "t", "input_shape": [4, 3],
      "layer": {"class_name": "ActivityRegularization", "config": {"name": "d", "l2": 0.1}}}})")),
              HasSubstr("ActivityRegularization is not supported in TimeDistributed"));
  EXPECT_THAT(ModelFault(SequentialOf(
                  R"({"class_name": "Dense", "config": {"name": "d", "units": 2, "input_shape": [3],
      "activity_regularizer": {"class_name": "OrthogonalRegularizer", "config": {"factor": 0.1}}}})")),
              HasSubstr("activity_regularizer: OrthogonalRegularizer is only supported for variables"));
  EXPECT_THAT(
      ModelFault(SequentialOf(R"({"class_name": "ActivityRegularization", "config": {"name": "r", "l1": -1,
      "input_shape": [3]}})")),
      HasSubstr("l1: -1 is negative"));
}

TEST(ActivityRegularizer, TakesReducedPrecisionButNotFloat16) {
  const Model model = Model::FromJson(kPenalized, "m").value();
  const PenaltyExamples examples = PenaltyExamples::OfClasses(model);
  const auto evaluate = [&](kernels::Precision precision) {
    const auto device = kernels::cuda::CreateDevice({.precision = precision}).value();
    const auto result =
        Replica::Create(model, kSparse, *device).value()->Evaluate(examples.parameters, examples.batch());
    return result.ok() ? absl::StatusOr<double>(result->sums.loss / 4) : result.status();
  };
  EXPECT_NEAR(evaluate(kernels::Precision::kBFloat16).value(), 1.7117151022, 0.02);
  EXPECT_THAT(std::string(evaluate(kernels::Precision::kFloat16).status().message()),
              HasSubstr("layer 'a': adds a penalty to the loss, which is not supported in float16"));
}

// Keras 3.15 on PyTorch: a layer that returns the mean and calls self.add_loss(0.3 * ops.mean(ops.sum(kl, axis=1)));
// m.evaluate(x, t, batch_size=4)
TEST(Sampling, AnEvaluationIsThatOfKerasAtTheMean) {
  const Model model = Model::FromJson(kVae, "m").value();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica = Replica::Create(model, kSquared, *device).value();
  const PenaltyExamples examples = PenaltyExamples::OfNumbers(model);
  EXPECT_NEAR(replica->Evaluate(examples.parameters, examples.batch()).value().sums.loss / 4, 0.7811237574,
              1e-6);
}

TEST(Sampling, SeveralDevicesGiveTheStepOfOne) {
  const Model model = Model::FromJson(kVae, "m").value();
  ExpectSameStepOnSeveralDevices(model, kSquared, PenaltyExamples::OfNumbers(model));
}

TEST(Sampling, NoiseDependsOnTheSeedAndHasVarianceOne) {
  const Model model = Model::FromJson(R"({"class_name": "Functional", "config": {"name": "s", "layers": [
      {"class_name": "InputLayer", "config": {"name": "m", "batch_shape": [null, 50]}, "inbound_nodes": []},
      {"class_name": "InputLayer", "config": {"name": "v", "batch_shape": [null, 50]}, "inbound_nodes": []},
      {"class_name": "Sampling", "config": {"name": "z"}, "inbound_nodes": [["m", "v"]]}],
      "input_layers": [["m", 0, 0], ["v", 0, 0]], "output_layers": [["z", 0, 0]]}})",
                                      "m")
                          .value();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica = Replica::Create(model, kSquared, *device).value();
  constexpr int64_t kExamples = 400;
  const std::vector<float> means(kExamples * 50, 3.0f), log_variances(means.size(), std::log(4.0f)),
      targets(means);
  const auto sample = [&](uint64_t seed) {
    BatchView batch = {.examples = kExamples, .targets = targets, .seed = seed};
    batch.inputs.push_back({DType::kFloat32, {kExamples, 50}, means.data()});
    batch.inputs.push_back({DType::kFloat32, {kExamples, 50}, log_variances.data()});
    const auto result = replica->ForwardBackward({}, batch, {}, [](int) {}).value();
    return std::vector<float>(result.outputs.begin(), result.outputs.end());
  };
  const std::vector<float> y = sample(1);
  double sum = 0, squares = 0;
  for (const float value : y) {
    sum += value;
    squares += (double{value} - 3) * (double{value} - 3);
  }
  const auto count = static_cast<double>(y.size());
  EXPECT_NEAR(sum / count, 3, 4 * 2 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 4, 4 * 4 * std::sqrt(2 / count));
  EXPECT_EQ(sample(1), y);
  EXPECT_NE(sample(2), y);
}

TEST(Sampling, TheGradientIsThatOfTheLossAtTheSameNoise) {
  const Model model = Model::FromJson(kVae, "m").value();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica = Replica::Create(model, kSquared, *device).value();
  const PenaltyExamples examples = PenaltyExamples::OfNumbers(model);
  const StepResult step = RunStep(*replica, model, examples.parameters, examples.batch());
  for (size_t i = 0; i < step.gradients.size(); ++i) {
    std::vector<float> moved = examples.parameters;
    constexpr float kStep = 1e-2f;
    moved[i] += kStep;
    const double high = RunStep(*replica, model, moved, examples.batch()).loss;
    moved[i] -= 2 * kStep;
    const double low = RunStep(*replica, model, moved, examples.batch()).loss;
    EXPECT_NEAR(step.gradients[i], (high - low) / 4 / (2 * double{kStep}), 2e-3) << i;
  }
}

TEST(Sampling, FaultsNameTheLayer) {
  const auto fault = [](const std::vector<std::pair<absl::string_view, absl::string_view>>& changes) {
    return ModelFault(absl::StrReplaceAll(kVae, changes));
  };
  EXPECT_THAT(fault({{R"("name": "log_var", "units": 2)", R"("name": "log_var", "units": 3)"}}),
              HasSubstr("means [2] and logarithms of variances [3] must have one shape"));
  EXPECT_THAT(fault({{"0.3", "-0.3"}}), HasSubstr("kl_weight: -0.3 is negative"));
  EXPECT_THAT(fault({{R"([["mean", "log_var"]])", R"([["mean"]])"}}), HasSubstr("layer 'z' (Sampling)"));
  EXPECT_THAT(fault({{R"("class_name": "Sampling")", R"("class_name": "Sampling", "module": "vae")"}}),
              HasSubstr("is a custom class of module 'vae'"));
}

}  // namespace
}  // namespace cairn::nn
