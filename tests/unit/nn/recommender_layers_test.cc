// Layers of recommenders against numbers of Keras 3.15 and keras_rs 0.4, and their refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/tensor_view.h"
#include "kernels/cpu/device.h"
#include "nn/batch.h"
#include "nn/model.h"
#include "nn/replica/replica.h"
#include "tests/support/source_dir.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

using Floats = std::vector<float>;

const Floats kX = {0.5f, -1, 2}, kY = {1, 0.25f, -0.5f}, kZ = {-1, 0.5f, 0.75f};
constexpr char kCross[] = "FeatureCross";

// A model of one layer, whose inputs have these shapes.
std::string ModelOf(absl::string_view class_name, absl::string_view config,
                    const std::vector<std::string>& shapes) {
  std::string layers;
  std::vector<std::string> tensors;
  for (size_t i = 0; i < shapes.size(); ++i) {
    absl::StrAppend(&layers, R"({"class_name": "InputLayer", "config": {"name": "in)", i,
                    R"(", "batch_shape": [null,)", shapes[i], "]}},\n");
    tensors.push_back(absl::StrCat(R"(["in)", i, R"(", 0, 0])"));
  }
  const std::string inputs = absl::StrJoin(tensors, ",");
  return absl::StrCat(R"({"class_name": "Functional", "config": {"layers": [)", layers, R"({"class_name": ")",
                      class_name, R"(", "config": {"name": "tested")", config.empty() ? "" : ", ", config,
                      R"(}, "inbound_nodes": [[)", inputs, R"(]]}], "input_layers": [)", inputs,
                      R"(], "output_layers": [["tested", 0, 0]]}})");
}

// Variables are filled with -0.5, -0.25, 0, 0.25, 0.5, and again.
Floats OutputOf(const std::string& json, const std::vector<Floats>& inputs) {
  const auto model = Model::FromJson(json, "m");
  EXPECT_TRUE(model.ok()) << model.status();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica =
      Replica::Create(*model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
  Floats parameters(static_cast<size_t>(model->num_parameters()));
  for (const ModelVariable& variable : model->variables()) {
    for (int64_t i = 0; i < variable.shape.num_elements(); ++i)
      parameters[static_cast<size_t>(variable.offset + i)] = static_cast<float>(i % 5) / 4 - 0.5f;
  }
  BatchView batch = {.examples = 1};
  for (size_t i = 0; i < inputs.size(); ++i) {
    Shape shape = {1};
    for (const int64_t extent : model->inputs()[i].shape.dims()) shape.Append(extent);
    batch.inputs.push_back(TensorView::OfFloats(shape, inputs[i]));
  }
  const Floats targets(static_cast<size_t>(model->output_shape().num_elements()));
  batch.targets = targets;
  const auto result = replica->Evaluate(parameters, batch);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? Floats(result->outputs.begin(), result->outputs.end()) : Floats();
}

constexpr float kRecommenderTolerance = 1e-6f;

TEST(DotInteraction, AgreesWithKerasRs) {
  const std::vector<std::pair<std::string, Floats>> cases = {
      {"", {-0.75f, 0.5f, -1.25f}},
      {R"("self_interaction": true)", {5.25f, -0.75f, 1.3125f, 0.5f, -1.25f, 1.8125f}},
      {R"("skip_gather": true)", {0, 0, 0, -0.75f, 0, 0, 0.5f, -1.25f, 0}},
      {R"("self_interaction": true, "skip_gather": true)",
       {5.25f, 0, 0, -0.75f, 1.3125f, 0, 0.5f, -1.25f, 1.8125f}}};
  for (const auto& [config, expected] : cases) {
    EXPECT_THAT(OutputOf(ModelOf("DotInteraction", config, {"3", "3", "3"}), {kX, kY, kZ}),
                Pointwise(FloatNear(kRecommenderTolerance), expected))
        << config;
  }
}

TEST(DotInteraction, InputsOfDifferentLengthsAreRefused) {
  EXPECT_THAT(
      ModelFault(ModelOf("DotInteraction", "", {"3", "4"})),
      HasSubstr("'tested' (DotInteraction), line 3: inputs [3] and [4]: expected vectors of one length"));
  EXPECT_THAT(ModelFault(ModelOf("DotInteraction", "", {"2,3", "2,3"})),
              HasSubstr("expected vectors of one length"));
}

TEST(Dot, AgreesWithKeras) {
  const auto dot = [](absl::string_view config, const std::vector<std::string>& shapes) {
    return ModelOf("Dot", config, shapes);
  };
  const Floats p = {-0.5f, -0.25f, 0, 0.25f, 0.5f, 0.75f};
  Floats q;
  for (int i = 0; i < 12; ++i) q.push_back(static_cast<float>(i) / 8 - 0.5f);
  EXPECT_THAT(OutputOf(dot(R"("axes": 1)", {"3", "3"}), {kX, kY}),
              Pointwise(FloatNear(kRecommenderTolerance), {-0.75f}));
  EXPECT_THAT(OutputOf(dot(R"("axes": -1, "normalize": true)", {"3", "3"}), {kX, kY}),
              Pointwise(FloatNear(kRecommenderTolerance), {-0.2857143f}));
  EXPECT_THAT(OutputOf(dot(R"("axes": 2, "normalize": true)", {"2,3", "4,3"}), {p, q}),
              Pointwise(FloatNear(kRecommenderTolerance), {0.9135002f, 0.6324555f, -0.5813183f, -0.6822423f,
                                                           -0.7940666f, 0.3779644f, 0.9925833f, 0.9683296f}));
  EXPECT_THAT(OutputOf(dot(R"("axes": [1, 2])", {"3", "4,3"}), {kX, q}),
              Pointwise(FloatNear(kRecommenderTolerance), {-0.375f, 0.1875f, 0.75f, 1.3125f}));
}

TEST(Dot, ProductOfAVectorWithItselfHasItsGradient) {
  const auto model = Model::FromJson(R"({"class_name": "Functional", "config": {"layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 3]}},
    {"class_name": "Dense", "config": {"name": "d", "units": 3, "use_bias": false}, "inbound_nodes": [[["x", 0, 0]]]},
    {"class_name": "Dot", "config": {"name": "dot", "axes": 1}, "inbound_nodes": [[["d", 0, 0], ["d", 0, 0]]]}],
    "input_layers": [["x", 0, 0]], "output_layers": [["dot", 0, 0]]}})",
                                     "m");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica =
      Replica::Create(*model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
  const Floats identity = {1, 0, 0, 0, 1, 0, 0, 0, 1}, targets = {4.25f};
  Floats gradient(9);
  BatchView batch = {.examples = 1, .targets = targets};
  batch.inputs.push_back(TensorView::OfFloats({1, 3}, kX));
  const auto result = replica->ForwardBackward(identity, batch, absl::MakeSpan(gradient), [](int) {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->sums.loss, 1) << "d * d = 5.25";
  // The gradient of d is 2 (d * d - 4.25) 2 d.
  EXPECT_THAT(gradient, Pointwise(FloatNear(kRecommenderTolerance), {1, -2, 4, -2, 4, -8, 4, -8, 16}));
}

TEST(Dot, UnsupportedAxesAndShapesAreRefused) {
  EXPECT_THAT(ModelFault(ModelOf("Dot", R"("axes": [2, 3])", {"3,2", "3,2"})),
              HasSubstr("'tested' (Dot), line 3: axes: input [3,2] has no axis 3 after that of the batch"));
  EXPECT_THAT(ModelFault(ModelOf("Dot", R"("axes": 0)", {"3,2", "3,2"})),
              HasSubstr("axes: input [3,2] has no axis 0 after that of the batch"));
  EXPECT_THAT(ModelFault(ModelOf("Dot", R"("axes": [-3, 1])", {"3,2", "3,2"})),
              HasSubstr("axes: input [3,2] has no axis -3 after that of the batch"));
  EXPECT_THAT(ModelFault(ModelOf("Dot", R"("axes": [1, 2])", {"3,2", "3,2"})),
              HasSubstr("inputs [3,2] and [3,2] differ in the axis of the product"));
  EXPECT_THAT(ModelFault(ModelOf("Dot", R"("axes": -1)", {"3", "4"})),
              HasSubstr("inputs [3] and [4] differ in the axis of the product"));
  EXPECT_THAT(ModelFault(ModelOf("Dot", R"("axes": [1, 1, 1])", {"3", "3"})),
              HasSubstr("axes: expected one axis, or one for each of two inputs"));
  EXPECT_THAT(ModelFault(ModelOf("Dot", "", {"3", "3"})), HasSubstr("axes: required"));
  EXPECT_THAT(ModelFault(ModelOf("Dot", R"("axes": -1)", {"3", "3", "3"})),
              HasSubstr("takes 2 inputs, not 3"));
}

TEST(FeatureCross, AgreesWithKerasRs) {
  EXPECT_THAT(OutputOf(ModelOf(kCross, "", {"3", "3"}), {kX, kY}),
              Pointwise(FloatNear(kRecommenderTolerance), {0.59375f, 0.625f, -1.0f}));
  EXPECT_THAT(OutputOf(ModelOf(kCross, "", {"3"}), {kX}),
              Pointwise(FloatNear(kRecommenderTolerance), {-0.25f, -0.125f, 4.0f}));
  EXPECT_THAT(OutputOf(ModelOf(kCross, R"("use_bias": false)", {"3", "3"}), {kX, kY}),
              Pointwise(FloatNear(kRecommenderTolerance), {0.84375f, 0.375f, -1.0f}));
  EXPECT_THAT(OutputOf(ModelOf(kCross, R"("projection_dim": 2, "diag_scale": 0.5, "pre_activation": "tanh")",
                               {"3", "3"}),
                       {kX, kY}),
              Pointwise(FloatNear(kRecommenderTolerance), {1.1955296f, 0.1562398f, -1.0624797f}));
}

TEST(FeatureCross, WrongOptionsAndShapesAreRefused) {
  EXPECT_THAT(ModelFault(ModelOf(kCross, "", {"3", "4"})),
              HasSubstr("'tested' (FeatureCross), line 3: inputs x0 [3] and x [4] have different shapes"));
  EXPECT_THAT(ModelFault(ModelOf(kCross, R"("diag_scale": -1)", {"3"})),
              HasSubstr("diag_scale: must not be negative"));
  EXPECT_THAT(ModelFault(ModelOf(kCross, R"("projection_dim": 0)", {"3"})), HasSubstr("projection_dim"));
}

TEST(RecommenderExamples, CanBeRead) {
  for (const char* name : {"dlrm", "dcn_v2", "deepfm"}) {
    const auto model = Model::FromFile(InSource(absl::StrCat("deploy/examples/", name, ".json")));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->inputs().size(), 27u) << "the numbers and 26 categories";
    EXPECT_EQ(model->output_shape(), Shape{1});
  }
}

}  // namespace
}  // namespace cairn::nn
