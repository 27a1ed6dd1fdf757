// Losses and metrics that leave out time steps: by a mask of the output, or by ignore_class.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/device.h"
#include "nn/metrics.h"
#include "nn/objective.h"
#include "nn/onnx_model.h"
#include "nn/replica/replica.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::HasSubstr;

// Tags for the steps of x [4], of which 0 are masked.
constexpr char kTagger[] = R"({"class_name": "Sequential", "config": {"layers": [
    {"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 2, "mask_zero": MASKED,
     "batch_input_shape": [null, 4]}},
    {"class_name": "TimeDistributed", "config": {"name": "tags", "layer":
     {"class_name": "Dense", "config": {"name": "d", "units": 3, "activation": "softmax"}}}}]},
  "compile_config": {"loss": LOSS, "metrics": ["accuracy"],
    "weighted_metrics": ["accuracy"]}})";

constexpr char kPlain[] = R"("sparse_categorical_crossentropy")";
constexpr char kIgnoring[] =
    R"({"class_name": "SparseCategoricalCrossentropy", "config": {"ignore_class": -1}})";

Model ReadMasked(const char* loss, const char* masked = "true") {
  return Model::FromJson(absl::StrReplaceAll(kTagger, {{"LOSS", loss}, {"MASKED", masked}}), "m").value();
}

struct Step {
  double loss, accuracy, weighted_accuracy;
};

// Two steps of SGD with a learning rate of 0.5, on values that a program with Keras 3.16 has too. `weights`: none, or
// one for each step of the examples.
std::vector<Step> Train(const Model& model, const std::vector<float>& targets,
                        const std::vector<float>& weights = {}) {
  Objective objective = ObjectiveOf(model.compile_config(), model).value();
  if (!weights.empty()) {
    EXPECT_TRUE(objective.SetWeights(model, {true}).ok());
  }
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica = Replica::Create(model, objective, *device).value();
  MetricSet metrics(MetricsOf(model.compile_config().metrics, objective, model).value());
  std::vector<float> parameters, gradients(static_cast<size_t>(model.num_parameters()));
  for (int64_t i = 0; i < model.num_parameters(); ++i)
    parameters.push_back(static_cast<float>(0.5 * std::sin(static_cast<double>(1 + i))));
  const std::vector<int32_t> ids = {1, 5, 0, 0, 3, 0, 8, 2, 0, 0, 0, 0};
  BatchView batch = {.examples = 3, .targets = targets, .weights = weights};
  batch.inputs.push_back({DType::kInt64, {3, 4}, nullptr});
  std::vector<int64_t> wide(ids.begin(), ids.end());
  if (model.inputs()[0].dtype == DType::kInt64) {
    batch.inputs[0] = {DType::kInt64, {3, 4}, wide.data()};
  } else {
    batch.inputs[0] = {model.inputs()[0].dtype, {3, 4}, ids.data()};
  }
  std::vector<Step> steps;
  for (int step = 0; step < 2; ++step) {
    const auto result =
        replica->ForwardBackward(parameters, batch, absl::MakeSpan(gradients), [](int) {}).value();
    metrics.Reset();
    metrics.Update(batch, result);
    const MetricValues values = metrics.Values();
    steps.push_back(
        {.loss = values[1].second, .accuracy = values[0].second, .weighted_accuracy = values[2].second});
    for (size_t i = 0; i < gradients.size(); ++i) parameters[i] -= 0.5f * gradients[i];
  }
  return steps;
}

TEST(LeftOutRows, MaskedStepsHaveNoLoss) {
  const std::vector<Step> steps = Train(ReadMasked(kPlain), {0, 2, 1, 1, 1, 0, 2, 0, 1, 1, 1, 1});
  EXPECT_NEAR(steps[0].loss, 1.1612788438796997, 1e-6);
  EXPECT_NEAR(steps[1].loss, 1.097543716430664, 1e-6);
}

TEST(LeftOutRows, MaskAndIgnoredClassTogether) {
  const std::vector<Step> steps = Train(ReadMasked(kIgnoring), {0, -1, 1, 1, 1, 0, 2, -1, 1, 1, 1, 1});
  EXPECT_NEAR(steps[0].loss, 1.1739397048950195, 1e-6);
  EXPECT_NEAR(steps[1].loss, 1.107414960861206, 1e-6);
}

// Keras 3.15 with JAX: model.evaluate(x, y, sample_weight=w, return_dict=True), model.fit(x, y, sample_weight=w,
// batch_size=3), and evaluate() again, with weights [3,4].
const std::vector<float> kWeights = {1, 0.5f, 2, 3, 0, 4, 1.5f, 0.25f, 1, 2, 0, 1};

TEST(LeftOutRows, TheOthersHaveWeights) {
  const std::vector<Step> steps = Train(ReadMasked(kPlain), {0, 2, 1, 1, 1, 0, 2, 0, 1, 1, 1, 1}, kWeights);
  EXPECT_NEAR(steps[0].loss, 0.7508166432380676, 1e-6);
  EXPECT_NEAR(steps[1].loss, 0.6929463744163513, 1e-6);
  EXPECT_NEAR(steps[0].accuracy, 0.4, 1e-6);
  EXPECT_NEAR(steps[0].weighted_accuracy, 0.6153846383094788, 1e-6);
}

TEST(LeftOutRows, MaskIgnoredClassAndWeightsTogether) {
  const std::vector<Step> steps =
      Train(ReadMasked(kIgnoring), {0, -1, 1, 1, 1, 0, 2, -1, 1, 1, 1, 1}, kWeights);
  EXPECT_NEAR(steps[0].loss, 0.9848142266273499, 1e-6);
  EXPECT_NEAR(steps[1].loss, 0.8832495212554932, 1e-6);
}

TEST(RowWeights, AreThoseOfStepsWithoutAMask) {
  const std::vector<Step> steps =
      Train(ReadMasked(kPlain, "false"), {0, 2, 1, 1, 1, 0, 2, 0, 1, 1, 1, 1}, kWeights);
  EXPECT_NEAR(steps[0].loss, 1.5393657684326172, 1e-6);
  EXPECT_NEAR(steps[1].loss, 1.3718056678771973, 1e-6);
  EXPECT_NEAR(steps[0].accuracy, 0.1666666716337204, 1e-6);
  EXPECT_NEAR(steps[0].weighted_accuracy, 0.1230769231915474, 1e-6);
  EXPECT_NEAR(steps[1].weighted_accuracy, 0.5538461804389954, 1e-6);
}

TEST(RowWeights, AnotherNumberOfThemIsRefused) {
  const Model model = ReadMasked(kPlain);
  Objective objective = ObjectiveOf(model.compile_config(), model).value();
  ASSERT_TRUE(objective.SetWeights(model, {true}).ok());
  const std::vector<float> parameters(static_cast<size_t>(model.num_parameters())), targets(4), weights(3);
  const std::vector<int64_t> wide(4);
  const std::vector<int32_t> narrow(4);
  const void* const ids =
      model.inputs()[0].dtype == DType::kInt64 ? static_cast<const void*>(wide.data()) : narrow.data();
  BatchView batch = {.examples = 1, .targets = targets, .weights = weights};
  batch.inputs.push_back({model.inputs()[0].dtype, {1, 4}, ids});
  EXPECT_THAT(std::string(CheckBatch(model, objective, parameters, batch).message()),
              HasSubstr("cannot have 4 targets and 3 weights"));
}

// Rows of any label in place of those that are left out give the same metrics.
TEST(LeftOutRows, MetricsLeaveThemOutToo) {
  const std::vector<Step> some = Train(ReadMasked(kPlain), {0, 2, 1, 1, 1, 0, 2, 0, 1, 1, 1, 1});
  const std::vector<Step> other = Train(ReadMasked(kPlain), {0, 2, 0, 0, 1, 2, 2, 0, 0, 0, 0, 0});
  EXPECT_EQ(some[1].accuracy, other[1].accuracy);
  EXPECT_NEAR(std::fmod(some[1].accuracy * 5, 1), 0, 1e-9) << "the mean over five steps";
  const std::vector<Step> ignored =
      Train(ReadMasked(kIgnoring, "false"), {2, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1});
  EXPECT_EQ(ignored[0].accuracy, 1) << "one step is left, and all are predicted as 2";
}

TEST(LeftOutRows, TheMaskIsNoOutputInOnnx) {
  const Model model = ReadMasked(kPlain);
  const OnnxGraph graph =
      MakeOnnxGraph(model, std::vector<float>(static_cast<size_t>(model.num_parameters()))).value();
  ASSERT_EQ(graph.outputs.size(), 1u);
  EXPECT_EQ(graph.outputs[0].shape, Shape({4, 3}));
  EXPECT_EQ(model.outputs()[0].shape, Shape({4, 3}));
  EXPECT_EQ(model.output_shape(), Shape({4 * 3 + 4}));
}

TEST(LeftOutRows, TargetsOfAnIgnoredClassAreAdmitted) {
  const LossSpec loss = {.ignore_class = 255};
  EXPECT_EQ(TargetFault(loss, {0, 255, 2}), "");
  EXPECT_THAT(TargetFault(loss, {0, -1}), HasSubstr("is -1"));
  EXPECT_THAT(
      std::string(ParseLoss({.class_name = "mse", .config = {{"ignore_class", 1}}}).status().message()),
      HasSubstr("ignore_class 1 is not supported"));
  for (const double value : {0.5, 1e300}) {
    const KerasObject sparse = {.class_name = "SparseCategoricalCrossentropy",
                                .config = {{"ignore_class", value}}};
    EXPECT_THAT(std::string(ParseLoss(sparse).status().message()),
                HasSubstr("expected a whole number from -2^24 to 2^24"));
  }
}

TEST(LeftOutRows, MasksOfOtherShapesAreRefused) {
  const auto model = Model::FromJson(SequentialOf(R"({"class_name": "Masking", "config": {"name": "k",
      "batch_input_shape": [null, 4, 3]}}, {"class_name": "TimeDistributed", "config": {"layer":
      {"class_name": "Reshape", "config": {"target_shape": [3, 1]}}}})"),
                                     "m");
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("can leave masked steps out only of [steps,features]"));
}

}  // namespace
}  // namespace cairn::nn
