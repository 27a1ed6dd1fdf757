// Model files with one fault each, and what a person is told about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/nn/models.h"
#include "worker/nn/model.h"

namespace cairn::nn {
namespace {

struct Broken {
  const char* fault;  // the test's name
  std::string json;
  std::vector<std::string> told;  // all of it must be in the message
};

std::string Conv(absl::string_view fields) {
  return SequentialOf(absl::StrCat(
      R"({"class_name": "Conv2D", "config": {"name": "edges", "input_shape": [8, 8, 3], )", fields, "}}"));
}

std::string Dense(absl::string_view fields) {
  return SequentialOf(absl::StrCat(
      R"({"class_name": "Dense", "config": {"name": "scores", "input_shape": [4], )", fields, "}}"));
}

std::string Input(absl::string_view fields) {
  return SequentialOf(absl::StrCat(R"({"class_name": "InputLayer", "config": {)", fields,
                                   R"(}}, {"class_name": "Dense", "config": {"units": 2}})"));
}

class BrokenModel : public testing::TestWithParam<Broken> {};

TEST_P(BrokenModel, IsRefusedWithTheRightWords) {
  const auto status = Model::FromJson(GetParam().json, "model.json").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_THAT(message, testing::StartsWith("model.json"));
  for (const std::string& words : GetParam().told) EXPECT_THAT(message, testing::HasSubstr(words));
}

INSTANTIATE_TEST_SUITE_P(
    , BrokenModel,
    testing::Values(
        Broken{"NoJson", "{\"config\": ", {"model.json:1"}},
        Broken{"NoObject", "[1, 2]", {"expected an object"}},
        Broken{"Empty", "{}", {"config: layers: required"}},
        Broken{"Functional",
               R"({"class_name": "Functional", "config": {}})",
               {"'Functional' models are not supported yet, only Sequential"}},
        Broken{"UnknownTopField", R"({"layers": []})", {"layers: unknown field"}},
        Broken{"NoLayers", SequentialOf(""), {"config: layers: required"}},
        Broken{"OnlyAnInput",
               SequentialOf(R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 4]}})"),
               {"there is only an InputLayer"}},
        Broken{"LayerIsNoObject", SequentialOf("3"), {"layers: expected objects"}},
        Broken{"NoClassName", SequentialOf(R"({"config": {"units": 3}})"), {"layer 0: class_name: required"}},
        Broken{"UnknownLayer",
               SequentialOf(R"({"class_name": "LSTM", "config": {"name": "memory", "units": 4}})"),
               {"layer 'memory' (LSTM): unknown layer; supported: InputLayer, Conv2D, Dense, Flatten, "
                "MaxPooling2D"}},
        Broken{
            "DuplicateNames",
            SequentialOf(R"({"class_name": "Dense", "config": {"name": "a", "units": 1, "input_shape": [2]}},
                               {"class_name": "Dense", "config": {"name": "a", "units": 1}})"),
            {"two layers are named 'a'"}},
        Broken{"NameWithSlash",
               SequentialOf(
                   R"({"class_name": "Dense", "config": {"name": "a/b", "units": 1, "input_shape": [2]}})"),
               {"layer 'a/b' (Dense): name: must be neither empty nor contain '/'"}},
        Broken{"NoInputShape",
               SequentialOf(R"({"class_name": "Dense", "config": {"units": 3}})"),
               {"layer 0 (Dense): batch_shape: required, such as [null,28,28,1]"}},
        Broken{"VaryingInputShape",
               Input(R"("batch_shape": [null, null, 28, 1])"),
               {"(InputLayer): batch_shape: [null,null,28,1]: axis 1 must be a positive integer"}},
        Broken{"NegativeInputShape",
               Input(R"("batch_shape": [null, -4])"),
               {"axis 1 must be a positive integer"}},
        Broken{"HugeInputShape",
               Input(R"("batch_shape": [null, 2000000000, 2000000000, 3])"),
               {"more than 2^40 elements"}},
        Broken{"IntegerInput",
               Input(R"("batch_shape": [null, 4], "dtype": "int32")"),
               {"(InputLayer): dtype: \"int32\" is not supported, only \"float32\""}},
        Broken{"SparseInput",
               Input(R"("batch_shape": [null, 4], "sparse": true)"),
               {"sparse: true is not supported, only false"}},
        Broken{"LateInputLayer",
               SequentialOf(R"({"class_name": "Dense", "config": {"units": 1, "input_shape": [2]}},
                               {"class_name": "InputLayer", "config": {"batch_shape": [null, 1]}})"),
               {"only supported as the first layer"}},
        Broken{"BuiltForAnotherShape",
               R"({"config": {"build_input_shape": [null, 3], "layers": [
                   {"class_name": "Dense", "config": {"units": 2, "input_shape": [4]}}]}})",
               {"build_input_shape [3] is not the first layer's [4]"}},
        Broken{"MissingFilters",
               Conv(R"("kernel_size": 3)"),
               {"layer 'edges' (Conv2D): filters: required, a positive integer"}},
        Broken{
            "MissingKernelSize", Conv(R"("filters": 4)"), {"layer 'edges' (Conv2D): kernel_size: required"}},
        Broken{"FiltersOfWrongType",
               Conv(R"("filters": "many", "kernel_size": 3)"),
               {"filters: expected a positive integer, got \"many\""}},
        Broken{"ZeroFilters",
               Conv(R"("filters": 0, "kernel_size": 3)"),
               {"filters: expected a positive integer, got 0"}},
        Broken{"ThreeKernelSizes",
               Conv(R"("filters": 4, "kernel_size": [3, 3, 3])"),
               {"kernel_size: expected a positive integer or two of them, got [3,3,3]"}},
        Broken{"KernelTooLarge",
               Conv(R"("filters": 4, "kernel_size": 9)"),
               {"layer 'edges' (Conv2D): a window of 9x9 does not fit an image of 8x8"}},
        Broken{"KernelBeyondMemory",
               Conv(R"("filters": 2000000000, "kernel_size": 8, "padding": "same")"),
               {"layer 'edges' (Conv2D): kernel [8,8,3,2000000000]", "more than 2^32 parameters"}},
        Broken{"UnknownPadding",
               Conv(R"("filters": 4, "kernel_size": 3, "padding": "causal")"),
               {"padding: expected one of valid, same, got \"causal\""}},
        Broken{"ChannelsFirst",
               Conv(R"("filters": 4, "kernel_size": 3, "data_format": "channels_first")"),
               {"layer 'edges' (Conv2D): data_format: \"channels_first\" is not supported, only "
                "\"channels_last\""}},
        Broken{"Groups",
               Conv(R"("filters": 4, "kernel_size": 3, "groups": 2)"),
               {"groups: 2 is not supported, only 1"}},
        Broken{"Dilation",
               Conv(R"("filters": 4, "kernel_size": 3, "dilation_rate": [2, 2])"),
               {"dilation_rate: dilated convolutions are not supported"}},
        Broken{
            "Regularizer",
            Conv(
                R"("filters": 4, "kernel_size": 3, "kernel_regularizer": {"class_name": "L2", "config": {"l2": 0.01}})"),
            {"layer 'edges' (Conv2D): kernel_regularizer: ", "is not supported"}},
        Broken{"Constraint",
               Dense(R"("units": 4, "bias_constraint": {"class_name": "NonNeg"})"),
               {"layer 'scores' (Dense): bias_constraint: ", "is not supported"}},
        Broken{"SoftmaxOnConv2D",
               Conv(R"("filters": 4, "kernel_size": 3, "activation": "softmax")"),
               {"activation: softmax is not supported on Conv2D"}},
        Broken{"UnknownActivation",
               Dense(R"("units": 4, "activation": "gelu")"),
               {"layer 'scores' (Dense): activation: unknown activation \"gelu\"; supported: linear, relu, "
                "softmax"}},
        Broken{"MisspeltField",
               Dense(R"("units": 4, "activaton": "relu")"),
               {"layer 'scores' (Dense): activaton: unknown field; known here: ", "activation"}},
        Broken{"UnknownInitializer",
               Dense(R"("units": 4, "kernel_initializer": "stft")"),
               {"kernel_initializer: unknown initializer \"stft\"; supported: GlorotUniform"}},
        Broken{"InitializerOfMatrices",
               Dense(R"("units": 4, "bias_initializer": "orthogonal")"),
               {"scores", "bias: initializer Orthogonal needs a shape of rank 2 or more, not [4]"}},
        Broken{
            "InitializerOption",
            Dense(
                R"("units": 4, "kernel_initializer": {"class_name": "RandomNormal", "config": {"sigma": 1}})"),
            {"kernel_initializer: initializer RandomNormal: sigma 1 is not supported"}},
        Broken{
            "MixedPrecision",
            Dense(
                R"("units": 4, "dtype": {"class_name": "DTypePolicy", "config": {"name": "mixed_float16"}})"),
            {"layer 'scores' (Dense): dtype: \"mixed_float16\" is not supported"}},
        Broken{"FrozenLayer",
               Dense(R"("units": 4, "trainable": false)"),
               {"layer 'scores' (Dense): trainable: false is not supported"}},
        Broken{"BiasOfWrongType",
               Dense(R"("units": 4, "use_bias": "yes")"),
               {"use_bias: expected true or false, got \"yes\""}},
        Broken{"PoolingWithoutImage",
               SequentialOf(R"({"class_name": "Flatten", "config": {"input_shape": [4, 4, 1]}},
                               {"class_name": "MaxPooling2D", "config": {"name": "pool"}})"),
               {"layer 'pool' (MaxPooling2D): input [16] is no image"}},
        Broken{"ConfigIsNoObject",
               SequentialOf(R"({"class_name": "Dense", "config": 4})"),
               {"layer 0 (Dense): expected an object, got 4"}}),
    [](const testing::TestParamInfo<Broken>& tested) { return tested.param.fault; });

// Puts each of these values in the place of each node of a real export. What comes out does not matter, only
// that it is a model or INVALID_ARGUMENT: no exception, no crash.
void ReplaceEveryNode(nlohmann::json& document, nlohmann::json& node, int& tried) {
  const nlohmann::json kept = node;
  for (const char* value : {"null", "true", "-1", "3", "1e300", "\"x\"", "[]", "{}", "[[1]]",
                            "{\"class_name\": 1}", "{\"class_name\": \"Dense\", \"config\": [1]}"}) {
    node = nlohmann::json::parse(value);
    const auto status = Model::FromJson(document.dump(), "model.json").status();
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
    ++tried;
  }
  node = kept;
  if (!node.is_structured()) return;
  for (nlohmann::json& child : node) ReplaceEveryNode(document, child, tried);
}

TEST(BrokenModelFile, NoNodeOfTheWrongTypeEscapesAsAnException) {
  std::ifstream file(kKerasJson);
  nlohmann::json document = nlohmann::json::parse(file);
  int tried = 0;
  ReplaceEveryNode(document, document, tried);
  EXPECT_GT(tried, 3000);
}

TEST(BrokenModelFile, AnArchiveWithoutConfigSaysSo) {
  // The smallest zip: an empty local header, then rubbish.
  const std::string path = testing::TempDir() + "/broken.keras";
  FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  std::fputs("PK\x03\x04 and nothing that a zip has", file);
  std::fclose(file);
  const auto status = Model::FromFile(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("broken.keras: no config.json in the .keras archive"));
}

}  // namespace
}  // namespace cairn::nn
