#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/model.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::ElementsAre;

TEST(ModelFromFile, ReadsARealExportOfKeras3) {
  const auto model = Model::FromFile(kKerasJson);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name(), "sequential");
  EXPECT_EQ(model->input_shape(), (Shape{28, 28, 1}));
  EXPECT_EQ(model->output_shape(), (Shape{10}));
  EXPECT_EQ(model->num_parameters(), 93322);
  EXPECT_THAT(LayerNames(*model), ElementsAre("conv2d", "max_pooling2d", "conv2d_1", "max_pooling2d_1",
                                              "conv2d_2", "flatten", "dense", "dense_1"));
  EXPECT_THAT(
      VariableNames(*model),
      ElementsAre("conv2d/kernel", "conv2d/bias", "conv2d_1/kernel", "conv2d_1/bias", "conv2d_2/kernel",
                  "conv2d_2/bias", "dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"));
}

TEST(ModelFromJson, LayersMayHaveSlashesInTheirNames) {
  const auto model = Model::FromJson(
      SequentialOf(R"({"class_name": "Dense", "config": {"name": "a", "units": 1, "input_shape": [2]}},
                      {"class_name": "Dense", "config": {"name": "a/kernel", "units": 1}})"),
      "model.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(VariableNames(*model), ElementsAre("a/kernel", "a/bias", "a/kernel/kernel", "a/kernel/bias"));
}

TEST(ModelFromFile, AMissingFileIsNamed) {
  const auto status = Model::FromFile("/nonexistent/model.json").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
}

TEST(ModelFromJson, AHandWrittenFileGivesTheSameNetwork) {
  const auto written = Model::FromJson(kHandWritten, "model.json");
  ASSERT_TRUE(written.ok()) << written.status();
  const Model exported = Model::FromFile(kKerasJson).value();
  EXPECT_EQ(LayerNames(*written), LayerNames(exported));
  EXPECT_EQ(VariableNames(*written), VariableNames(exported));
  EXPECT_EQ(written->InitialParameters(7), exported.InitialParameters(7));
}

TEST(ModelFromJson, VariablesAreContiguousInTheFlatBuffer) {
  const Model model = Model::FromFile(kKerasJson).value();
  int64_t offset = 0;
  for (const ModelVariable& variable : model.variables()) {
    EXPECT_EQ(variable.offset, offset) << variable.name;
    offset += variable.shape.num_elements();
  }
  EXPECT_EQ(offset, model.num_parameters());
  EXPECT_EQ(model.variables()[6].shape, (Shape{576, 64}));
}

TEST(ModelFromJson, Keras2FormIsRead) {
  const auto model = Model::FromJson(R"({
    "class_name": "Sequential",
    "config": {"name": "sequential", "layers": [
      {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 8, 8, 3], "dtype": "float32",
                                              "sparse": false, "ragged": false, "name": "conv2d_input"}},
      {"class_name": "Conv2D", "config": {"name": "conv2d", "trainable": true,
        "dtype": {"class_name": "Policy", "config": {"name": "float32"}},
        "batch_input_shape": null, "filters": 4, "kernel_size": [3, 3], "strides": [2, 1], "padding": "same",
        "data_format": "channels_last", "dilation_rate": [1, 1], "groups": 1, "activation": "relu",
        "kernel_initializer": {"class_name": "GlorotUniform", "config": {"seed": null}},
        "bias_initializer": {"class_name": "Zeros", "config": {}}}}
    ]},
    "keras_version": "2.11.0", "backend": "tensorflow"})",
                                     "keras2.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->output_shape(), (Shape{4, 8, 4}));
}

TEST(ModelFromJson, AutomaticNamesAvoidGivenNames) {
  const auto model =
      Model::FromJson(SequentialOf(R"({"class_name": "Dense", "config": {"units": 1, "input_shape": [2]}},
                      {"class_name": "Dense", "config": {"units": 1, "name": "dense"}},
                      {"class_name": "Dense", "config": {"units": 1}})"),
                      "m");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(LayerNames(*model), ElementsAre("dense_1", "dense", "dense_2"));
}

TEST(ModelFromJson, TheFirstLayerMayGiveTheInputShapeInEverySpelling) {
  for (const char* spelling :
       {R"("batch_shape": [null, 4])", R"("batch_input_shape": [null, 4])", R"("input_shape": [4])"}) {
    const auto model = Model::FromJson(
        SequentialOf(absl::StrCat(R"({"class_name": "Dense", "config": {"units": 2, )", spelling, "}}")),
        "m");
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->input_shape(), (Shape{4}));
  }
}

TEST(ModelFromJson, WithoutAnInputLayerBuildInputShapeIsUsed) {
  const auto model = Model::FromJson(
      R"({"config": {"build_input_shape": [null, 3], "layers": [{"class_name": "Dense", "config": {"units": 2}}]}})",
      "m");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->input_shape(), (Shape{3}));
}

TEST(ModelFromJson, DenseWorksOnTheLastAxis) {
  const Model model =
      Model::FromJson(
          SequentialOf(R"({"class_name": "Dense", "config": {"units": 5, "input_shape": [4, 3]}})"), "m")
          .value();
  EXPECT_EQ(model.output_shape(), (Shape{4, 5}));
  EXPECT_EQ(model.num_parameters(), 3 * 5 + 5);
}

TEST(ModelFromJson, ActivationsWrittenAsFunctionObjectsAreRead) {
  const auto model = Model::FromJson(
      SequentialOf(R"({"class_name": "Dense", "config": {"units": 5, "input_shape": [3], "activation":
                       {"module": "builtins", "class_name": "function", "config": "relu"}}})"),
      "m");
  EXPECT_TRUE(model.ok()) << model.status();
}

TEST(ModelFromJson, CanonicalFormIgnoresSpacesAndTheOrderOfKeys) {
  const Model a =
      Model::FromJson(
          R"({"config":{"layers":[{"class_name":"Dense","config":{"units":2,"input_shape":[3]}}]}})", "a")
          .value();
  const Model b =
      Model::FromJson(
          R"({"config": {"layers": [ {"config": {"input_shape": [3], "units": 2}, "class_name": "Dense"} ]}})",
          "b")
          .value();
  EXPECT_EQ(a.canonical_json(), b.canonical_json());
}

}  // namespace
}  // namespace cairn::nn
