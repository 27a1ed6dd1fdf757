// Models with several outputs: their objective, gradients and metrics are those of Keras.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/device.h"
#include "nn/metrics.h"
#include "nn/objective.h"
#include "nn/onnx_model.h"
#include "nn/pipeline/pipeline_replica.h"
#include "nn/replica/mirrored_replica.h"
#include "nn/replica/replica.h"
#include "tests/unit/nn/models.h"
#include "tests/unit/nn/several_devices.h"

namespace cairn::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One trunk with two heads: "kind" [3], probabilities, and "box" [2, 2].
constexpr char kLayers[] = R"({"class_name": "Functional", "config": {"name": "two", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 5]}, "inbound_nodes": []},
    {"class_name": "Dense", "config": {"name": "trunk", "units": 6, "activation": "relu"},
     "inbound_nodes": [["x"]]},
    {"class_name": "Dense", "config": {"name": "flat", "units": 4}, "inbound_nodes": [["trunk"]]},
    {"class_name": "Dense", "config": {"name": "kind", "units": 3, "activation": "softmax"},
     "inbound_nodes": [["trunk"]]},
    {"class_name": "Reshape", "config": {"name": "box", "target_shape": [2, 2]}, "inbound_nodes": [["flat"]]}],
    "input_layers": [["x", 0, 0]], "output_layers": OUTPUTS}, "compile_config": COMPILED})";

constexpr char kCompiled[] = R"({"loss": {"kind": "sparse_categorical_crossentropy", "box": "huber"},
    "loss_weights": {"kind": 0.5, "box": 2.0}, "metrics": {"kind": ["accuracy"], "box": ["mae"]}})";

absl::StatusOr<Model> ReadCompiled(const std::string& compiled,
                                   const std::string& outputs = R"([["kind", 0, 0], ["box", 0, 0]])") {
  return Model::FromJson(absl::StrReplaceAll(kLayers, {{"OUTPUTS", outputs}, {"COMPILED", compiled}}), "m");
}

std::string CompiledFault(const std::string& compiled) {
  const auto model = ReadCompiled(compiled);
  if (!model.ok()) return std::string(model.status().message());
  const auto objective = ObjectiveOf(model->compile_config(), *model);
  if (!objective.ok()) return std::string(objective.status().message());
  return std::string(MetricsOf(model->compile_config().metrics, *objective, *model).status().message());
}

// The examples and the parameters of a program with Keras 3.16, whose numbers the tests expect.
struct TwoOutputExamples {
  std::vector<float> x, targets, weights = {1, 0.5f, 2, 1}, parameters;

  explicit TwoOutputExamples(const Model& model) {
    for (int i = 0; i < 20; ++i) x.push_back(static_cast<float>(std::cos(i)));
    const float kinds[] = {0, 2, 1, 2};
    for (int example = 0; example < 4; ++example) {
      targets.push_back(kinds[example]);
      for (int i = 0; i < 4; ++i) targets.push_back(static_cast<float>(4 * example + i) / 8 - 1);
    }
    for (int64_t i = 0; i < model.num_parameters(); ++i)
      parameters.push_back(static_cast<float>(0.5 * std::sin(static_cast<double>(1 + i))));
  }
  BatchView batch() const {
    BatchView view = {.examples = 4, .targets = targets, .weights = weights};
    view.inputs.push_back({DType::kFloat32, {4, 5}, x.data()});
    return view;
  }
};

struct TwoOutputs : public testing::Test {
  const Model model = ReadCompiled(kCompiled).value();
  const Objective objective = ObjectiveOf(model.compile_config(), model).value();
  const std::unique_ptr<kernels::Device> device = kernels::CreateCpuDevice(0, 1).value();
};

// Three steps of SGD with a learning rate of 0.125, and weighted examples.
TEST_F(TwoOutputs, StepsAreThoseOfKeras) {
  const auto replica = Replica::Create(model, objective, *device).value();
  MetricSet metrics(MetricsOf(model.compile_config().metrics, objective, model).value());
  TwoOutputExamples examples(model);
  const BatchView batch = examples.batch();
  std::vector<float> gradients(examples.parameters.size());
  const double kLoss[] = {0.9875730276, 0.9324055910, 0.8871990442};
  const double kBoxLoss[] = {0.1725172549, 0.1514852494, 0.1352447122};
  const double kBoxMae[] = {0.4753285348, 0.4445474743, 0.4170665145};
  const double kKindAccuracy[] = {0.25, 0.25, 0.5};
  const double kKindLoss[] = {1.2850770950, 1.2588701248, 1.2334191799};
  for (int step = 0; step < 3; ++step) {
    const BatchResult result =
        replica->ForwardBackward(examples.parameters, batch, absl::MakeSpan(gradients), [](int) {}).value();
    metrics.Reset();
    metrics.Update(batch, result);
    const MetricValues values = metrics.Values();
    ASSERT_EQ(values.size(), 5u);
    const std::pair<const char*, double> expected[] = {{"box_loss", kBoxLoss[step]},
                                                       {"box_mae", kBoxMae[step]},
                                                       {"kind_accuracy", kKindAccuracy[step]},
                                                       {"kind_loss", kKindLoss[step]},
                                                       {"loss", kLoss[step]}};
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i].first, expected[i].first);
      EXPECT_NEAR(values[i].second, expected[i].second, 1e-6) << values[i].first << " of step " << step;
    }
    for (size_t i = 0; i < gradients.size(); ++i) examples.parameters[i] -= 0.125f * gradients[i];
  }
}

// The same steps with weights for each output: one for each example of "kind", one for each row of "box".
TEST_F(TwoOutputs, EachMayHaveWeightsOfItsOwn) {
  const Model weighted =
      ReadCompiled(absl::StrReplaceAll(kCompiled, {{"metrics", "weighted_metrics"}})).value();
  Objective of_rows = objective;
  ASSERT_TRUE(of_rows.SetWeights(weighted, {false, true}).ok());
  TwoOutputExamples examples(weighted);
  examples.weights = {1, 1, 0, 0.5f, 3, 0.5f, 2, 2, 1, 1, 0.25f, 4};
  const BatchView batch = examples.batch();
  Devices devices("nn");
  const std::unique_ptr<Replica> replicas[] = {
      Replica::Create(weighted, of_rows, *device).value(),
      MakeMirroredReplica(weighted, of_rows, devices.pointers()).value(),
      MakePipelineReplica({.model = weighted,
                           .objective = of_rows,
                           .threads = devices.pointers(),
                           .locations = PipelineLocations::OfDevices({0, 0, 1, 1, 1, 1}),
                           .micro_batches = 2})
          .value()};
  const double kExpected[][5] = {// box_loss, box_mae, kind_accuracy, kind_loss, loss
                                 {0.0823276266, 0.2823722959, 0.2222222239, 1.2850770950, 0.8071938157},
                                 {0.0589420833, 0.2217925191, 0.6666666865, 1.2351675034, 0.7354679108},
                                 {0.0485579222, 0.1821829677, 0.6666666865, 1.1973785162, 0.6958050728}};
  for (const auto& replica : replicas) {
    std::vector<float> parameters = examples.parameters, gradients(parameters.size());
    MetricSet metrics(MetricsOf(weighted.compile_config().metrics, of_rows, weighted).value());
    for (const auto& expected : kExpected) {
      const BatchResult result =
          replica->ForwardBackward(parameters, batch, absl::MakeSpan(gradients), [](int) {}).value();
      metrics.Reset();
      metrics.Update(batch, result);
      const MetricValues values = metrics.Values();
      ASSERT_EQ(values.size(), 5u);
      for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(values[i].second, expected[i], 1e-6) << values[i].first;
      for (size_t i = 0; i < gradients.size(); ++i) parameters[i] -= 0.125f * gradients[i];
    }
  }
}

TEST_F(TwoOutputs, OneArrayCannotWeighTheRowsOfBoth) {
  EXPECT_EQ(std::string(Objective(objective).SetWeights(model, {true}).message()),
            "output 'kind' has 1 rows, output 'box' 2: one array cannot weigh the rows of both");
}

TEST_F(TwoOutputs, SeveralDevicesGiveTheStepOfOne) {
  const TwoOutputExamples examples(model);
  std::vector<float> expected(examples.parameters.size()), gradients(expected.size());
  const BatchResult alone =
      Replica::Create(model, objective, *device)
          .value()
          ->ForwardBackward(examples.parameters, examples.batch(), absl::MakeSpan(expected), [](int) {})
          .value();
  Devices devices("nn");
  std::vector<int> device_of(model.nodes().size(), 1);
  device_of[0] = 0;
  std::vector<std::unique_ptr<Replica>> replicas;
  replicas.push_back(MakeMirroredReplica(model, objective, devices.pointers()).value());
  replicas.push_back(MakePipelineReplica({.model = model,
                                          .objective = objective,
                                          .threads = devices.pointers(),
                                          .locations = PipelineLocations::OfDevices(device_of),
                                          .micro_batches = 2})
                         .value());
  for (const auto& replica : replicas) {
    const BatchResult result =
        replica->ForwardBackward(examples.parameters, examples.batch(), absl::MakeSpan(gradients), [](int) {})
            .value();
    EXPECT_NEAR(result.sums.loss, alone.sums.loss, 1e-6);
    EXPECT_EQ(result.sums.examples, 4);
    ASSERT_EQ(result.sums.of_outputs.size(), 2u);
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(result.sums.of_outputs[i], alone.sums.of_outputs[i], 1e-6);
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(gradients[i], expected[i], 1e-6);
  }
}

TEST(SeveralOutputs, ListsAreInTheOrderOfTheOutputs) {
  const Model model =
      ReadCompiled(R"({"loss": ["sparse_categorical_crossentropy", "mse"], "loss_weights": [1, 2],
      "metrics": [["accuracy"], ["mae", "mse"]]})")
          .value();
  const Objective objective = ObjectiveOf(model.compile_config(), model).value();
  ASSERT_EQ(objective.losses().size(), 2u);
  EXPECT_EQ(objective.losses()[1].loss.kind, kernels::LossKind::kMeanSquaredError);
  EXPECT_EQ(objective.losses()[1].weight, 2);
  EXPECT_EQ(objective.TargetsPerExample(model), 1 + 4);
  std::vector<std::string> names;
  const auto specs = MetricsOf(model.compile_config().metrics, objective, model).value();
  for (const MetricSpec& spec : specs) names.push_back(spec.name);
  EXPECT_THAT(names, ElementsAre("kind_loss", "kind_accuracy", "box_loss", "box_mae", "box_mse"));
}

TEST(SeveralOutputs, ADictionaryNamesThem) {
  const Model model = ReadCompiled(R"({"loss": {"a": "sparse_categorical_crossentropy", "b": "mse"}})",
                                   R"({"b": ["box", 0, 0], "a": ["kind", 0, 0]})")
                          .value();
  ASSERT_EQ(model.outputs().size(), 2u);
  EXPECT_EQ(model.outputs()[0].name, "a");
  EXPECT_EQ(model.outputs()[1].name, "b");
  EXPECT_EQ(model.outputs()[1].begin, 3);
  EXPECT_TRUE(ObjectiveOf(model.compile_config(), model).ok());
}

// Its gradient is zero, also where it is infinite, and it has neither targets nor metrics.
TEST(SeveralOutputs, AnOutputWithoutALossIsNotTrained) {
  const Model model = ReadCompiled(R"({"loss": ["sparse_categorical_crossentropy", null]})").value();
  const Objective objective = ObjectiveOf(model.compile_config(), model).value();
  EXPECT_EQ(objective.TargetsPerExample(model), 1);
  TwoOutputExamples examples(model);
  examples.targets = {0, 2, 1, 2};
  for (const ModelVariable& variable : model.variables()) {
    if (variable.name == "flat/bias") examples.parameters[static_cast<size_t>(variable.offset)] = INFINITY;
  }
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica = Replica::Create(model, objective, *device).value();
  std::vector<float> gradients(examples.parameters.size(), 7.0f);
  ASSERT_TRUE(
      replica->ForwardBackward(examples.parameters, examples.batch(), absl::MakeSpan(gradients), [](int) {})
          .ok());
  for (const ModelVariable& variable : model.variables()) {
    double sum = 0;
    for (int64_t i = 0; i < variable.shape.num_elements(); ++i)
      sum += std::abs(gradients[static_cast<size_t>(variable.offset + i)]);
    EXPECT_TRUE(std::isfinite(sum)) << variable.name;
    EXPECT_EQ(sum == 0, variable.name.rfind("flat/", 0) == 0) << variable.name;
  }
}

TEST(SeveralOutputs, EachIsAnOutputInOnnx) {
  const Model model = ReadCompiled(kCompiled).value();
  const OnnxGraph graph =
      MakeOnnxGraph(model, std::vector<float>(static_cast<size_t>(model.num_parameters()))).value();
  ASSERT_EQ(graph.outputs.size(), 2u);
  EXPECT_EQ(graph.outputs[0].name, "kind");
  EXPECT_EQ(graph.outputs[0].shape, Shape({3}));
  EXPECT_EQ(graph.outputs[1].name, "box");
  EXPECT_EQ(graph.outputs[1].shape, Shape({2, 2}));
  for (const OnnxNode& node : graph.nodes) EXPECT_NE(node.op_type, "Concat");
}

TEST(SeveralOutputs, OneTensorMayBeTwoOutputs) {
  const Model model = ReadCompiled("null", R"([["box", 0, 0], ["box", 0, 0]])").value();
  EXPECT_EQ(model.outputs()[1].name, "box_1");
  const OnnxGraph graph =
      MakeOnnxGraph(model, std::vector<float>(static_cast<size_t>(model.num_parameters()))).value();
  ASSERT_EQ(graph.outputs.size(), 2u);
  EXPECT_EQ(graph.outputs[1].name, "box_1");
}

TEST(SeveralOutputs, TheirNamesAreUnique) {
  const Model model =
      ReadCompiled("null", R"({"a": ["box", 0, 0], "a_1": ["box", 0, 0], "b": ["kind", 0, 0]})").value();
  EXPECT_EQ(model.outputs()[1].name, "a_1");
  const Model repeated =
      Model::FromJson(
          absl::StrReplaceAll(kLayers, {{"\"kind\"", "\"box_1\""},
                                        {"OUTPUTS", R"([["box", 0, 0], ["box", 0, 0], ["box_1", 0, 0]])"},
                                        {"COMPILED", "null"}}),
          "m")
          .value();
  EXPECT_EQ(repeated.outputs()[0].name, "box");
  EXPECT_EQ(repeated.outputs()[1].name, "box_2");
  EXPECT_EQ(repeated.outputs()[2].name, "box_1");
}

// A detection head: a class and a box. Keras 3.15 on PyTorch, model.train_on_batch() after
// m.compile(SGD(0.125), [CategoricalFocalCrossentropy(), CIoULoss()], loss_weights=[0.5, 2.0]), where CIoULoss calls
// keras.utils.bounding_boxes.compute_ciou(y_true, y_pred, "center_xywh").
TEST(SeveralOutputs, AClassAndABoxTrainAsInKeras) {
  const Model model = ReadCompiled(R"({"loss": {"kind": {"module": "keras.losses", "class_name":
      "CategoricalFocalCrossentropy", "config": {"name": "categorical_focal_crossentropy", "reduction":
      "sum_over_batch_size", "from_logits": false, "label_smoothing": 0.0, "axis": -1, "alpha": 0.25, "gamma": 2.0},
      "registered_name": null}, "flat": {"module": "keras_cv.src.losses.ciou_loss", "class_name": "CIoULoss",
      "config": {"name": null, "reduction": "sum_over_batch_size", "eps": 1e-07,
      "bounding_box_format": "center_xyWH"}, "registered_name": "keras_cv>CIoULoss"}},
      "loss_weights": {"kind": 0.5, "flat": 2.0}})",
                                   R"([["kind", 0, 0], ["flat", 0, 0]])")
                          .value();
  const Objective objective = ObjectiveOf(model.compile_config(), model).value();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica = Replica::Create(model, objective, *device).value();
  TwoOutputExamples examples(model);
  examples.targets.clear();
  const size_t kinds[] = {0, 2, 1, 2};
  for (size_t example = 0; example < 4; ++example) {
    for (size_t kind = 0; kind < 3; ++kind) examples.targets.push_back(kind == kinds[example] ? 1.0f : 0.0f);
    const auto place = static_cast<float>(example);
    for (const float number : {0.25f * place, 0.5f, 1 + 0.125f * place, 0.75f})
      examples.targets.push_back(number);
  }
  std::vector<float> gradients(examples.parameters.size());
  const double kLoss[] = {3.2398493290, 2.7155926228, 2.1855139732, 1.5723233223};
  const double kKindLoss[] = {0.1545794606, 0.1570983827, 0.1636722684, 0.1695533395};
  const double kBoxLoss[] = {1.5812797546, 1.3185217381, 1.0518388748, 0.7437733412};
  for (int step = 0; step < 4; ++step) {
    const BatchResult result =
        replica->ForwardBackward(examples.parameters, examples.batch(), absl::MakeSpan(gradients), [](int) {})
            .value();
    EXPECT_NEAR(result.sums.loss / 4, kLoss[step], 3e-6) << step;
    EXPECT_NEAR(result.sums.of_outputs[0] / 4, kKindLoss[step], 1e-6) << step;
    EXPECT_NEAR(result.sums.of_outputs[1] / 4, kBoxLoss[step], 2e-6) << step;
    for (size_t i = 0; i < gradients.size(); ++i) examples.parameters[i] -= 0.125f * gradients[i];
  }
}

TEST(SeveralOutputs, FaultsNameTheOutput) {
  EXPECT_THAT(CompiledFault(R"({"loss": {"kinds": "mse"}})"),
              HasSubstr("loss: 'kinds' is for no output of the model, whose outputs are 'kind', 'box'"));
  EXPECT_THAT(CompiledFault(R"({"loss": ["mse", "mse", "mse"]})"),
              HasSubstr("loss: entry 2 is for no output"));
  EXPECT_THAT(CompiledFault(R"({"loss": "mse", "loss_weights": {"boxes": 1}})"),
              HasSubstr("loss_weights: 'boxes' is for no output"));
  EXPECT_THAT(CompiledFault(R"({"loss": "mse", "loss_weights": [1, -2]})"),
              HasSubstr("output 'box': loss_weights: -2 is not a number of at least 0"));
  EXPECT_THAT(CompiledFault(R"({"loss": "mse", "loss_weights": 3})"),
              HasSubstr("loss_weights: expected a list of numbers or a dictionary, got 3"));
  EXPECT_THAT(CompiledFault(R"({"loss": [null, null]})"), HasSubstr("the model file names no loss"));
  EXPECT_THAT(CompiledFault(R"({"loss": ["mse", "in_batch_softmax"]})"), HasSubstr("output 'box'"));
  EXPECT_THAT(CompiledFault(R"({"loss": ["mse", null], "metrics": [null, "mae"]})"),
              HasSubstr("metrics: output 'box' has no loss"));
  EXPECT_THAT(CompiledFault(R"({"loss": "mse", "metrics": {"boxes": ["mae"]}})"),
              HasSubstr("metrics: 'boxes' is for no output"));
  EXPECT_THAT(CompiledFault(R"({"loss": "mse", "metrics": [["mae"], ["sparse_categorical_accuracy"]]})"),
              HasSubstr("output 'box': metric 'sparse_categorical_accuracy' needs class indices"));
  EXPECT_THAT(std::string(ReadCompiled("null", R"([["kind", 0, 0], ["x", 0, 0]])").status().message()),
              HasSubstr("config: output_layers: 'x' is not computed by the network"));
}

}  // namespace
}  // namespace cairn::nn
