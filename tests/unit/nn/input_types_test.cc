// The types of a model's inputs, from its JSON to the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nn/model.h"
#include "nn/onnx_model.h"
#include "nn/pipeline/pipeline_replica.h"
#include "nn/replica/mirrored_replica.h"
#include "tests/unit/nn/models.h"
#include "tests/unit/nn/several_devices.h"

namespace cairn::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kEmbedding[] =
    R"({"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 2}})";
constexpr char kDense[] = R"({"class_name": "Dense", "config": {"name": "d", "units": 2}})";

// The type of the only input of a model whose InputLayer has `dtype`.
DType TypeWith(absl::string_view dtype, absl::string_view layers) {
  const auto model =
      Model::FromJson(SequentialOf(absl::StrCat(
                          R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 4], "dtype": ")",
                          dtype, R"("}},)", layers)),
                      "m");
  EXPECT_TRUE(model.ok()) << model.status();
  return model->inputs()[0].dtype;
}

TEST(ModelInputType, ValuesThatAreLookedUpAreIntegers) {
  EXPECT_EQ(TypeWith("float32", kEmbedding), DType::kInt64);
  EXPECT_EQ(TypeWith("int64", kEmbedding), DType::kInt64);
  EXPECT_EQ(TypeWith("int32", kEmbedding), DType::kInt32);
  EXPECT_EQ(TypeWith("uint8", kEmbedding), DType::kUint8);
  EXPECT_EQ(TypeWith("bool", kEmbedding), DType::kBool);
  EXPECT_EQ(
      TypeWith("float32",
               absl::StrCat(R"({"class_name": "Reshape", "config": {"target_shape": [2, 2]}},)", kEmbedding)),
      DType::kInt64);
}

TEST(ModelInputType, AllOtherValuesAreFloats) {
  for (const char* dtype : {"float32", "int32", "int64", "uint8", "bool"}) {
    EXPECT_EQ(TypeWith(dtype, kDense), DType::kFloat32);
  }
  EXPECT_EQ(
      TypeWith("int32", absl::StrCat(R"({"class_name": "Rescaling", "config": {"scale": 2}},)", kEmbedding)),
      DType::kFloat32);
}

// "ids", read by an Embedding behind a Reshape and by a Dense, and "numbers", read by another Dense.
std::string Mixed() {
  const auto layer = [](const char* class_name, const char* name, const char* config, const char* inbound) {
    return absl::StrCat(R"({"class_name": ")", class_name, R"(", "name": ")", name,
                        R"(", "config": {"name": ")", name, "\"", config, R"(}, "inbound_nodes": [)", inbound,
                        "]},");
  };
  std::string layers =
      layer("InputLayer", "ids", R"(, "batch_shape": [null, 2])", "") +
      layer("InputLayer", "numbers", R"(, "batch_shape": [null, 3])", "") +
      layer("Reshape", "r", R"(, "target_shape": [2, 1])", R"([["ids", 0, 0, {}]])") +
      layer("Embedding", "e", R"(, "input_dim": 9, "output_dim": 2)", R"([["r", 0, 0, {}]])") +
      layer("Flatten", "f", "", R"([["e", 0, 0, {}]])") +
      layer("Dense", "of_ids", R"(, "units": 2)", R"([["ids", 0, 0, {}]])") +
      layer("Dense", "of_numbers", R"(, "units": 2)", R"([["numbers", 0, 0, {}]])") +
      layer("Concatenate", "all", "",
            R"([["f", 0, 0, {}], ["of_ids", 0, 0, {}], ["of_numbers", 0, 0, {}]])") +
      layer("Dense", "last", R"(, "units": 3)", R"([["all", 0, 0, {}]])");
  layers.pop_back();
  return absl::StrCat(R"({"class_name": "Functional", "config": {"name": "m", "layers": [)", layers,
                      R"(], "input_layers": [["ids", 0, 0], ["numbers", 0, 0]],
                         "output_layers": [["last", 0, 0]]}})");
}

class MixedInputs : public testing::Test {
 protected:
  static constexpr int64_t kExamples = 6;

  MixedInputs() {
    for (int64_t i = 0; i < 2 * kExamples; ++i) ids_.push_back(i % 9);
    for (int64_t i = 0; i < 3 * kExamples; ++i) numbers_.push_back(static_cast<float>(i) / 7);
    for (int64_t i = 0; i < kExamples; ++i) labels_.push_back(static_cast<float>(i % 3));
  }
  BatchView Batch() const {
    return {.examples = kExamples,
            .inputs = {{DType::kInt64, {kExamples, 2}, ids_.data()},
                       TensorView::OfFloats({kExamples, 3}, numbers_)},
            .targets = labels_};
  }

  const Model model_ = Model::FromJson(Mixed(), "m").value();
  const std::vector<float> parameters_ = model_.InitialParameters(2);
  std::vector<int64_t> ids_;
  std::vector<float> numbers_, labels_;
};

TEST_F(MixedInputs, EachReachesItsLayersInItsType) {
  EXPECT_EQ(model_.inputs()[0].dtype, DType::kInt64);
  EXPECT_EQ(model_.inputs()[1].dtype, DType::kFloat32);
  const Devices devices("n");
  std::unique_ptr<Replica> replica = MakeMirroredReplica(model_, kLogits, devices.pointers()).value();
  const StepResult step = RunStep(*replica, model_, parameters_, Batch());
  for (const ModelVariable& variable : model_.variables()) {
    SCOPED_TRACE(variable.name);
    for (int64_t i = variable.offset; i < variable.offset + variable.shape.num_elements(); ++i) {
      constexpr float kStep = 1e-2f;
      const auto loss = [&](float change) {
        std::vector<float> moved = parameters_;
        moved[static_cast<size_t>(i)] += change;
        return replica->Evaluate(moved, Batch())->sums.loss / kExamples;
      };
      EXPECT_NEAR(step.gradients[static_cast<size_t>(i)], (loss(kStep) - loss(-kStep)) / (2 * kStep), 2e-3);
    }
  }
}

TEST_F(MixedInputs, MemoryOfAnotherDeviceAndPartsOfABatchChangeNothing) {
  const Devices one("n"), several("fnf");
  std::unique_ptr<Replica> alone = MakeMirroredReplica(model_, kLogits, one.pointers()).value();
  std::unique_ptr<Replica> mirrored = MakeMirroredReplica(model_, kLogits, several.pointers()).value();
  const StepResult expected = RunStep(*alone, model_, parameters_, Batch());
  ExpectSameStep(RunStep(*mirrored, model_, parameters_, Batch()), expected, 1e-5f);
}

TEST_F(MixedInputs, OtherTypesAndShapesAreRefused) {
  const Devices one("n");
  std::unique_ptr<Replica> replica = MakeMirroredReplica(model_, kLogits, one.pointers()).value();
  BatchView batch = Batch();
  batch.inputs[0] = TensorView::OfFloats({kExamples, 2}, absl::MakeConstSpan(numbers_).first(12));
  EXPECT_EQ(replica->Evaluate(parameters_, batch).status().message(),
            "a batch of 6 examples cannot have [6,2] as input 'ids', which takes int64 [2]");
  batch.inputs.pop_back();
  EXPECT_EQ(replica->Evaluate(parameters_, batch).status().message(), "a batch of 1 inputs for a model of 2");
}

TEST_F(MixedInputs, AStageThatWouldSendIntegersToAnotherDeviceIsRefused) {
  const Devices two("nn");
  // The Reshape is on the first device, the Embedding on the second.
  std::vector<int> device_of(model_.nodes().size(), 1);
  ASSERT_EQ(model_.nodes()[0].layer->name(), "r");
  device_of[0] = 0;
  const auto pipeline = MakePipelineReplica({.model = model_,
                                             .objective = kLogits,
                                             .threads = two.pointers(),
                                             .locations = PipelineLocations::OfDevices(device_of),
                                             .micro_batches = 2});
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  const auto result = (*pipeline)->Evaluate(parameters_, Batch());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("layer 'r' passes integers to a layer on another"));
}

TEST_F(MixedInputs, ADividedModelTakesThem) {
  const Devices one("n"), two("nf");
  std::unique_ptr<Replica> alone = MakeMirroredReplica(model_, kLogits, one.pointers()).value();
  std::vector<int> device_of(model_.nodes().size(), 0);
  device_of.back() = 1;
  std::unique_ptr<Replica> pipeline =
      MakePipelineReplica({.model = model_,
                           .objective = kLogits,
                           .threads = two.pointers(),
                           .locations = PipelineLocations::OfDevices(device_of),
                           .micro_batches = 2})
          .value();
  ExpectSameStep(RunStep(*pipeline, model_, parameters_, Batch()),
                 RunStep(*alone, model_, parameters_, Batch()), 1e-5f);
}

TEST_F(MixedInputs, BecomeOnnxInputsOfTheirTypes) {
  const OnnxGraph graph = MakeOnnxGraph(model_, parameters_).value();
  EXPECT_EQ(graph.inputs[0].dtype, DType::kInt64);
  EXPECT_EQ(graph.inputs[1].dtype, DType::kFloat32);
  std::vector<std::string> casts, gathers;
  for (const OnnxNode& node : graph.nodes) {
    if (node.op_type == "Cast") casts.push_back(node.inputs[0]);
    if (node.op_type == "Gather") gathers.push_back(node.inputs[1]);
  }
  EXPECT_THAT(casts, ElementsAre("ids"));  // for the Dense
  EXPECT_THAT(gathers, ElementsAre(HasSubstr("Reshape")));
}

constexpr char kRagged[] = R"({"config": {"layers": [
    {"class_name": "InputLayer", "config": {"name": "ids", "batch_input_shape": [null, null], "dtype": "int64",
                                            "ragged": true, "sparse": false}},
    {"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 2}},
    {"class_name": "GlobalAveragePooling1D", "config": {"name": "mean"}},
    {"class_name": "Dense", "config": {"name": "d", "units": 3}}]}})";

class RaggedInput : public testing::Test {
 protected:
  BatchView Batch() const { return {.examples = 4, .inputs = {View()}, .targets = labels_}; }
  TensorView View() const {
    return {DType::kInt64, {static_cast<int64_t>(ids_.size())}, ids_.data(), absl::MakeConstSpan(splits_)};
  }

  const Model model_ = Model::FromJson(kRagged, "m").value();
  const std::vector<float> parameters_ = model_.InitialParameters(2);
  std::vector<int64_t> ids_ = {1, 8, 1, 0, 3, 4, 5, 6, 7}, splits_ = {0, 3, 4, 7, 9};
  const std::vector<float> labels_ = {0, 1, 2, 1};
};

TEST_F(RaggedInput, GivesTheMeanOfItsRowsAndItsGradient) {
  EXPECT_TRUE(model_.inputs()[0].ragged);
  for (const char* kind : {"n", "f"}) {
    const Devices devices(kind);
    std::unique_ptr<Replica> replica = MakeMirroredReplica(model_, kLogits, devices.pointers()).value();
    const StepResult step = RunStep(*replica, model_, parameters_, Batch());
    const float* const table = parameters_.data();
    const float* const kernel = parameters_.data() + 18;
    // The last example is the mean of rows 6 and 7.
    const float a = (table[12] + table[14]) / 2, b = (table[13] + table[15]) / 2;
    EXPECT_NEAR(step.outputs[9], a * kernel[0] + b * kernel[3], 1e-6f);
    for (size_t i = 0; i < 18; ++i) {
      constexpr float kStep = 1e-2f;
      const auto loss = [&](float change) {
        std::vector<float> moved = parameters_;
        moved[i] += change;
        return replica->Evaluate(moved, Batch())->sums.loss / 4;
      };
      EXPECT_NEAR(step.gradients[i], (loss(kStep) - loss(-kStep)) / (2 * kStep), 1e-3) << i;
    }
  }
}

TEST_F(RaggedInput, IsDividedAmongDevices) {
  const Devices one("n"), several("fnf");
  std::unique_ptr<Replica> alone = MakeMirroredReplica(model_, kLogits, one.pointers()).value();
  std::unique_ptr<Replica> mirrored = MakeMirroredReplica(model_, kLogits, several.pointers()).value();
  ExpectSameStep(RunStep(*mirrored, model_, parameters_, Batch()),
                 RunStep(*alone, model_, parameters_, Batch()), 1e-5f);
}

TEST_F(RaggedInput, BadRowsAreNamed) {
  const Devices one("n");
  std::unique_ptr<Replica> replica = MakeMirroredReplica(model_, kLogits, one.pointers()).value();
  ids_[1] = std::numeric_limits<int64_t>::min();
  EXPECT_THAT(std::string(replica->Evaluate(parameters_, Batch()).status().message()),
              HasSubstr("layer 'e': index -9223372036854775808 in a table of 9 rows: expected 0 to 8"));
  ids_[1] = 8;
  BatchView batch = Batch();
  batch.inputs[0].row_splits = {};
  EXPECT_THAT(std::string(replica->Evaluate(parameters_, batch).status().message()),
              HasSubstr("as input 'ids', which takes ragged int64"));
}

TEST_F(RaggedInput, ADividedModelTakesThem) {
  const Devices one("n");
  std::unique_ptr<Replica> alone = MakeMirroredReplica(model_, kLogits, one.pointers()).value();
  for (const char* kinds : {"nf", "fn"}) {
    for (const std::vector<int>& device_of : std::vector<std::vector<int>>{{0, 0, 1}, {1, 0, 0}}) {
      const Devices two(kinds);
      std::unique_ptr<Replica> pipeline =
          MakePipelineReplica({.model = model_,
                               .objective = kLogits,
                               .threads = two.pointers(),
                               .locations = PipelineLocations::OfDevices(device_of),
                               .micro_batches = 3})
              .value();
      ExpectSameStep(RunStep(*pipeline, model_, parameters_, Batch()),
                     RunStep(*alone, model_, parameters_, Batch()), 1e-5f);
      const std::vector<int64_t> splits = std::exchange(splits_, {0, 3, 4, 4, 9});
      ExpectSameStep(RunStep(*pipeline, model_, parameters_, Batch()),
                     RunStep(*alone, model_, parameters_, Batch()), 1e-5f);
      splits_ = splits;
    }
  }
}

TEST_F(RaggedInput, ExamplesWithoutValuesHaveAMeanOfZero) {
  const Devices two("nf");
  std::unique_ptr<Replica> replica = MakeMirroredReplica(model_, kLogits, two.pointers()).value();
  splits_ = {0, 0, 1, 9, 9};
  std::vector<float> parameters = parameters_;
  for (size_t i = 0; i < 3; ++i) parameters[24 + i] = static_cast<float>(i);  // the bias
  const StepResult step = RunStep(*replica, model_, parameters, Batch());
  for (const size_t example : {0, 3}) {
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(step.outputs[3 * example + i], static_cast<float>(i));
  }
  splits_ = {0, 0, 0, 0, 0};
  ids_.clear();
  const StepResult none = RunStep(*replica, model_, parameters, Batch());
  EXPECT_EQ(none.outputs[11], 2);
  for (size_t i = 0; i < 18; ++i) EXPECT_EQ(none.gradients[i], 0) << "of the table";
}

TEST_F(RaggedInput, MoreValuesThanADeviceCanNumberAreRefused) {
  const Devices one("f");
  std::unique_ptr<Replica> replica = MakeMirroredReplica(model_, kLogits, one.pointers()).value();
  splits_.back() = int64_t{1} << 32;  // refused before they are read
  EXPECT_THAT(std::string(replica->Evaluate(parameters_, Batch()).status().message()),
              HasSubstr("a ragged input of 4 examples has 4294967296 values, more than 4294967294"));
}

TEST(UnusedInput, IsRefusedIfItIsRagged) {
  constexpr char kModel[] = R"({"class_name": "Functional", "config": {"name": "m", "layers": [
      {"class_name": "InputLayer", "name": "x", "config": {"name": "x", "batch_shape": [null, 3]},
       "inbound_nodes": []},
      {"class_name": "InputLayer", "name": "ids", "inbound_nodes": [],
       "config": {"name": "ids", "batch_shape": [null, null], "dtype": "int64", "ragged": true}},
      {"class_name": "Dense", "name": "d", "config": {"name": "d", "units": 2},
       "inbound_nodes": [[["x", 0, 0, {}]]]}],
      "input_layers": [["x", 0, 0], ["ids", 0, 0]], "output_layers": [["d", 0, 0]]}})";
  EXPECT_THAT(std::string(Model::FromJson(kModel, "m").status().message()),
              HasSubstr("input 'ids' is ragged, and no layer reads it"));
}

TEST(RaggedWeights, IdsAndWeightsMustBothBeRagged) {
  const auto error = [](absl::string_view ids, absl::string_view weights) {
    const std::string json = absl::StrCat(
        R"({"class_name": "Functional", "config": {"name": "m", "layers": [
        {"class_name": "InputLayer", "name": "i", "inbound_nodes": [], "config": {"name": "i", "dtype": "int64", )",
        ids, R"(}}, {"class_name": "InputLayer", "name": "w", "inbound_nodes": [], "config": {"name": "w", )",
        weights,
        R"(}}, {"class_name": "EmbedReduce", "name": "e", "config": {"name": "e", "input_dim": 4, "output_dim": 2},
        "inbound_nodes": [[["i", 0, 0, {}], ["w", 0, 0, {}]]]}],
        "input_layers": [["i", 0, 0], ["w", 0, 0]], "output_layers": [["e", 0, 0]]}})");
    return std::string(Model::FromJson(json, "m").status().message());
  };
  constexpr absl::string_view kAny = R"("batch_shape": [null, null], "ragged": true)";
  constexpr absl::string_view kOne = R"("batch_shape": [null, 1])";
  EXPECT_EQ(error(kAny, kAny), "");
  EXPECT_EQ(error(kOne, kOne), "");
  EXPECT_THAT(error(kAny, kOne), HasSubstr("layer 'e' (EmbedReduce): only its ids are ragged"));
  EXPECT_THAT(error(kOne, kAny), HasSubstr("layer 'e' (EmbedReduce): only its weights are ragged"));
}

TEST_F(RaggedInput, OtherUsesAreRefused) {
  std::string text = kRagged;
  text.replace(text.find(R"("GlobalAveragePooling1D")"), 24, R"("Flatten")");
  EXPECT_THAT(
      std::string(Model::FromJson(text, "m").status().message()),
      HasSubstr(
          "input 'ids' is ragged, and layer 'e' (Embedding) reads it: only an Embedding that is followed "
          "by GlobalAveragePooling1D can"));
  text = kRagged;
  text.replace(text.find("[null, null]"), 12, "[null, 5]");
  EXPECT_THAT(std::string(Model::FromJson(text, "m").status().message()),
              HasSubstr("a ragged input has one axis that varies, such as [null,null]"));
}

}  // namespace
}  // namespace cairn::nn
