// Keras' preprocessing layers: their ids and vectors against Keras 3.15 on TensorFlow (layers.json), and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/tensor_view.h"
#include "kernels/cpu/device.h"
#include "nn/batch.h"
#include "nn/model.h"
#include "nn/onnx_model.h"
#include "nn/replica/replica.h"
#include "tests/support/source_dir.h"

namespace cairn::nn {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kPreprocessingTolerance = 1e-6f;

json InputOf(const std::string& name, const std::string& dtype, int64_t values) {
  return {{"class_name", "InputLayer"},
          {"name", name},
          {"config", {{"name", name}, {"dtype", dtype}, {"batch_shape", {nullptr, values}}}},
          {"inbound_nodes", json::array()}};
}

json Call(json layer, const std::string& name, const std::vector<std::string>& sources) {
  layer["name"] = layer["config"]["name"] = name;
  json call = json::array();
  for (const std::string& source : sources) call.push_back({source, 0, 0, json::object()});
  layer["inbound_nodes"] = json::array({call});
  return layer;
}

json Embedding() {
  return {{"class_name", "Embedding"}, {"config", {{"input_dim", 1 << 20}, {"output_dim", 1}}}};
}

absl::StatusOr<Model> ModelOf(const std::vector<json>& layers) {
  json inputs = json::array();
  for (const json& layer : layers) {
    if (layer["class_name"] == "InputLayer") inputs.push_back({layer["name"], 0, 0});
  }
  return Model::FromJson(json{{"class_name", "Functional"},
                              {"config",
                               {{"layers", layers},
                                {"input_layers", inputs},
                                {"output_layers", {{layers.back()["name"], 0, 0}}}}}}
                             .dump(),
                         "m");
}

// A model whose only input, of this dtype and number of values, passes the layer.
absl::StatusOr<Model> ModelWith(const json& layer, const std::string& dtype, int64_t values = 1) {
  std::vector<json> layers = {InputOf("x", dtype, values), Call(layer, "tested", {"x"})};
  if (layer["config"].value("output_mode", "int") == "int" && layer["class_name"] != "CategoryEncoding")
    layers.push_back(Call(Embedding(), "rows", {"tested"}));
  return ModelOf(layers);
}

std::string PreprocessingFault(const char* class_name, const json& config,
                               const std::string& dtype = "string") {
  return std::string(ModelWith({{"class_name", class_name}, {"config", config}}, dtype).status().message());
}

int64_t IdOf(const IdMap& map, const json& value) {
  const auto id = value.is_string()           ? map.OfText(value.get<std::string>())
                  : value.is_number_integer() ? map.OfInteger(value.get<int64_t>())
                                              : map.OfFloat(value.get<float>());
  EXPECT_TRUE(id.has_value()) << value;
  return id.value_or(0);
}

// The output of the model's only layer for one example.
std::vector<float> Encoded(const Model& model, const std::vector<int64_t>& ids) {
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica =
      Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
  BatchView batch = {.examples = 1};
  batch.inputs.push_back({DType::kInt64, {1, static_cast<int64_t>(ids.size())}, ids.data()});
  const std::vector<float> targets(static_cast<size_t>(model.output_shape().num_elements()));
  batch.targets = targets;
  const auto result = replica->Evaluate({}, batch);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? std::vector<float>(result->outputs.begin(), result->outputs.end())
                     : std::vector<float>();
}

TEST(PreprocessingLayers, AgreeWithKeras) {
  const json cases =
      json::parse(ReadFile(InSource("tests/support/data/keras_preprocessing/layers.json")).value());
  ASSERT_GE(cases.size(), 60u);
  for (const json& c : cases) {
    SCOPED_TRACE(c["config"].dump());
    const auto model = ModelWith({{"class_name", c["class_name"]}, {"config", c["config"]}},
                                 c["dtype"].get<std::string>(), static_cast<int64_t>(c["inputs"][0].size()));
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_EQ(model->inputs().size(), 1u);
    const IdMap* const map = model->inputs()[0].map.get();
    EXPECT_EQ(map == nullptr, c["class_name"] == "CategoryEncoding");
    EXPECT_EQ(model->inputs()[0].dtype, DType::kInt64);
    for (size_t row = 0; row < c["inputs"].size(); ++row) {
      std::vector<int64_t> ids;
      for (const json& value : c["inputs"][row])
        ids.push_back(map == nullptr ? value.get<int64_t>() : IdOf(*map, value));
      const json& expected = c["outputs"][row];
      if (model->nodes()[0].layer->class_name() == "Embedding") {
        EXPECT_EQ(json(ids), expected);
        continue;
      }
      const json flat = expected.flatten();
      const std::vector<float> got = Encoded(*model, ids);
      ASSERT_EQ(got.size(), flat.size());
      size_t at = 0;
      for (const json& row_of_expected : expected) {
        for (const json& value :
             row_of_expected.is_array() ? row_of_expected : json::array({row_of_expected}))
          EXPECT_NEAR(got[at++], value.get<float>(), kPreprocessingTolerance);
      }
    }
  }
}

TEST(PreprocessingLayers, AnInputHasOneModelInputForEachMap) {
  const json lookup = {{"class_name", "IntegerLookup"}, {"config", {{"vocabulary", {5, 7}}}}};
  const json hash = {{"class_name", "Hashing"}, {"config", {{"num_bins", 9}}}};
  const auto model = ModelOf(
      {InputOf("a", "int64", 1), InputOf("b", "int64", 1), Call(lookup, "ids", {"a"}),
       Call(hash, "buckets", {"a"}), Call(Embedding(), "r0", {"b"}), Call(Embedding(), "r1", {"ids"}),
       Call(Embedding(), "r2", {"buckets"}), Call(Embedding(), "r3", {"a"}), Call(Embedding(), "r4", {"ids"}),
       Call({{"class_name", "Add"}, {"config", json::object()}}, "sum", {"r0", "r1", "r2", "r3", "r4"})});
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->inputs().size(), 4u);
  std::vector<std::string> names;
  for (const ModelInput& input : model->inputs()) names.push_back(input.name);
  EXPECT_THAT(names, ElementsAre("a", "a", "a", "b"));
  EXPECT_EQ(model->inputs()[0].map, nullptr);
  EXPECT_EQ(model->inputs()[1].map->OfInteger(7), 2);
  EXPECT_EQ(model->inputs()[2].map->Describe(), "a hash to 9 ids");
  EXPECT_EQ(model->inputs()[3].map, nullptr);
  std::vector<int> read;
  for (const Node& node : model->nodes()) read.push_back(node.inputs[0]);
  EXPECT_THAT(read, ElementsAre(-4, -2, -3, -1, -2, 0));
  const std::vector<float> parameters(static_cast<size_t>(model->num_parameters()));
  EXPECT_THAT(MakeOnnxGraph(*model, parameters).status().message(),
              HasSubstr("layer 'buckets' (Hashing): ONNX has no operation for its hash"));
}

TEST(PreprocessingLayers, AnInputOfTwoTypesIsConvertedInOnnx) {
  const json intervals = {{"class_name", "Discretization"}, {"config", {{"bin_boundaries", {1, 2}}}}};
  const auto model =
      ModelOf({InputOf("a", "int64", 1), Call(intervals, "ids", {"a"}), Call(Embedding(), "r0", {"ids"}),
               Call(Embedding(), "r1", {"a"}),
               Call({{"class_name", "Add"}, {"config", json::object()}}, "sum", {"r0", "r1"})});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto graph = MakeOnnxGraph(*model, std::vector<float>(static_cast<size_t>(model->num_parameters())));
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(graph->inputs.size(), 1u);
  int casts = 0;
  for (const OnnxNode& node : graph->nodes)
    casts += node.op_type == "Cast" && node.inputs[0] == graph->inputs[0].name ? 1 : 0;
  EXPECT_EQ(casts, 1);
}

TEST(PreprocessingLayers, AnIdWithoutAPlaceHasItsReason) {
  const auto model =
      ModelWith({{"class_name", "StringLookup"}, {"config", {{"vocabulary", {"a"}}, {"num_oov_indices", 0}}}},
                "string");
  ASSERT_TRUE(model.ok()) << model.status();
  const IdMap& map = *model->inputs()[0].map;
  EXPECT_EQ(map.OfText("a"), 0);
  EXPECT_EQ(map.OfText("b"), std::nullopt);
  EXPECT_EQ(map.WhyNoId("'b'", "x"),
            "input 'x': layer 'tested' (StringLookup) has no id for 'b', which is not in its vocabulary: "
            "num_oov_indices is 0; 1 gives such values an id");
}

TEST(PreprocessingLayers, CountWeightsAreReadAsEachKerasWritesThem) {
  const json encoding = {{"class_name", "CategoryEncoding"},
                         {"config", {{"num_tokens", 3}, {"output_mode", "count"}}}};
  json keras2 = Call(encoding, "tested", {"x"});
  keras2["inbound_nodes"][0][0][3]["count_weights"] = {"w", 0, 0};
  json keras3 = Call(encoding, "tested", {"x"});
  const auto tensor = [](const char* name) {
    return json{{"class_name", "__keras_tensor__"}, {"config", {{"keras_history", {name, 0, 0}}}}};
  };
  keras3["inbound_nodes"] = {{{"args", {tensor("x")}}, {"kwargs", {{"count_weights", tensor("w")}}}}};
  for (const json& layer : {keras2, keras3}) {
    const auto model = ModelOf({InputOf("x", "int64", 2), InputOf("w", "float32", 2), layer});
    ASSERT_TRUE(model.ok()) << model.status();
    const auto device = kernels::CreateCpuDevice(0, 1).value();
    const auto replica =
        Replica::Create(*model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
    const std::vector<int64_t> ids = {2, 0, 2, 2};
    const std::vector<float> weights = {0.5f, 1, 0.25f, 2}, targets(6);
    BatchView batch = {.examples = 2};
    batch.inputs.push_back({DType::kInt64, {2, 2}, ids.data()});
    batch.inputs.push_back(TensorView::OfFloats({2, 2}, weights));
    batch.targets = targets;
    const auto result = replica->Evaluate({}, batch);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->outputs, ElementsAre(1, 0, 0.5f, 0, 0, 2.25f));
  }
}

TEST(PreprocessingLayers, FaultsOfVocabulariesAreNamed) {
  const auto lookup = [](const json& config) { return PreprocessingFault("StringLookup", config); };
  EXPECT_THAT(lookup({{"vocabulary", {"a", "b", "a"}}}), HasSubstr("vocabulary: \"a\" occurs twice"));
  EXPECT_THAT(lookup({{"vocabulary", {"a", 3}}}),
              HasSubstr("vocabulary: token 1 is 3, but the layer takes strings"));
  EXPECT_THAT(lookup({{"vocabulary", json::array()}}), HasSubstr("vocabulary: has no tokens"));
  EXPECT_THAT(lookup(json::object()), HasSubstr("vocabulary: the layer has none: call adapt(), or give"));
  EXPECT_THAT(lookup({{"vocabulary", {"a", "b"}}, {"mask_token", "b"}}),
              HasSubstr("\"b\" is the mask_token"));
  EXPECT_THAT(lookup({{"vocabulary", {"a", "b"}}, {"max_tokens", 2}}),
              HasSubstr("max_tokens: 2, but the vocabulary has 3 ids"));
  EXPECT_THAT(lookup({{"vocabulary", {"a", "b"}}, {"vocabulary_size", 4}}),
              HasSubstr("vocabulary_size: 4, but the vocabulary has 3 ids"));
  EXPECT_THAT(lookup({{"vocabulary", {"a"}}, {"invert", true}}), HasSubstr("invert: true is not supported"));
  EXPECT_THAT(lookup({{"vocabulary", {"a"}}, {"num_oov_indices", -1}}),
              HasSubstr("num_oov_indices: expected a whole number from 0 on, got -1"));
  EXPECT_THAT(lookup({{"vocabulary", {"a"}}, {"output_mode", "tf_idf"}}),
              HasSubstr("idf_weights: the layer has none"));
  EXPECT_THAT(lookup({{"vocabulary", {"a"}}, {"output_mode", "tf_idf"}, {"idf_weights", {1, 2}}}),
              HasSubstr("idf_weights: 2 weights for 1 tokens"));
  EXPECT_THAT(PreprocessingFault("IntegerLookup", {{"vocabulary", {"7"}}}, "int64"),
              HasSubstr("token 0 is \"7\", but the layer takes integers"));
  EXPECT_THAT(PreprocessingFault("IntegerLookup", {{"vocabulary", {7}}, {"salt", 1}}, "int64"),
              HasSubstr("salt: needs the oov_method \"farmhash\""));
}

TEST(PreprocessingLayers, LongListsOfNumbersKeepTheirOrder) {
  const std::vector<int> ascending = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_EQ(PreprocessingFault("Discretization", {{"bin_boundaries", ascending}}, "float32"), "");
}

TEST(PreprocessingLayers, ValuesOfAnotherKindAreRefused) {
  EXPECT_THAT(PreprocessingFault("StringLookup", {{"vocabulary", {"a"}}}, "int64"),
              HasSubstr("'tested' (StringLookup), line 1: cannot take the values of input 'x', which are "
                        "numbers, not strings: give the Input dtype=\"string\""));
  EXPECT_THAT(PreprocessingFault("IntegerLookup", {{"vocabulary", {1}}}, "string"),
              HasSubstr("cannot take the values of input 'x', which are strings"));
  EXPECT_THAT(PreprocessingFault("Hashing", {{"num_bins", 3}, {"mask_value", 1}}, "string"),
              HasSubstr("cannot take the values of input 'x'"));
  EXPECT_THAT(PreprocessingFault("Hashing", {{"num_bins", 3}, {"salt", "a"}}),
              HasSubstr("salt: expected an integer"));
  EXPECT_THAT(PreprocessingFault("Discretization", {{"bin_boundaries", {2, 1}}}, "float32"),
              HasSubstr("bin_boundaries: must be in ascending order"));
  EXPECT_THAT(PreprocessingFault("Discretization", {{"num_bins", 3}}, "float32"),
              HasSubstr("bin_boundaries: the layer has none: call adapt()"));
  EXPECT_THAT(PreprocessingFault("CategoryEncoding", {{"num_tokens", 3}}, "string"),
              HasSubstr("input 'x' is of strings, and layer 'tested' (CategoryEncoding) reads it: only "
                        "StringLookup, Hashing and TextVectorization can take strings"));
  EXPECT_THAT(PreprocessingFault("CategoryEncoding", {{"num_tokens", 3}, {"output_mode", "int"}}, "int64"),
              HasSubstr("output_mode: the layer has no mode \"int\""));
  EXPECT_THAT(PreprocessingFault("CategoryEncoding", {{"num_tokens", 1 << 30}}, "int64"),
              HasSubstr("num_tokens: vectors of 1073741824 numbers, at most 16777216"));
  EXPECT_THAT(PreprocessingFault("Hashing", {{"num_bins", 1 << 30}, {"output_mode", "count"}}, "int64"),
              HasSubstr("num_bins: vectors of 1073741824 numbers"));
  EXPECT_THAT(PreprocessingFault("IntegerLookup", {{"vocabulary", {uint64_t{1} << 63}}}, "int64"),
              HasSubstr("token 0 is 9223372036854775808"));
  const json hash = {{"class_name", "Hashing"}, {"config", {{"num_bins", 9}}}};
  EXPECT_THAT(ModelOf({InputOf("x", "int64", 1), Call(hash, "first", {"x"}), Call(hash, "second", {"first"}),
                       Call(Embedding(), "rows", {"second"})})
                  .status()
                  .message(),
              HasSubstr("layer 'second' (Hashing), line 1: reads the ids of layer 'first' (Hashing), but its "
                        "values must be an input of the model"));
  EXPECT_THAT(ModelOf({InputOf("x", "int64", 1), Call(hash, "first", {"x"})}).status().message(),
              HasSubstr("output_layers: 'first' is not computed by the network"));
}

}  // namespace
}  // namespace cairn::nn
