// TextVectorization: its ids against Keras 3.15 on TensorFlow (keras_text/layers.json), and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/core/files.h"
#include "common/ids/text_ids.h"
#include "nn/model.h"
#include "tests/support/source_dir.h"

namespace cairn::nn {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A model of one text whose ids an Embedding looks up, or whose vectors are the output.
absl::StatusOr<Model> ModelWith(const json& config, int64_t texts = 1) {
  json layers = {{{"class_name", "InputLayer"},
                  {"config", {{"name", "x"}, {"dtype", "string"}, {"batch_shape", {nullptr, texts}}}}},
                 {{"class_name", "TextVectorization"}, {"config", config}}};
  layers[1]["config"]["name"] = "tested";
  if (config.value("output_mode", "int") == "int") {
    layers.push_back({{"class_name", "Embedding"}, {"config", {{"input_dim", 99}, {"output_dim", 1}}}});
    if (config.value("ragged", false)) layers.push_back({{"class_name", "GlobalAveragePooling1D"}});
  }
  return Model::FromJson(json{{"class_name", "Sequential"}, {"config", {{"layers", layers}}}}.dump(), "m");
}

std::string VectorizationFault(const json& config, int64_t texts = 1) {
  return std::string(ModelWith(config, texts).status().message());
}

TEST(TextVectorization, IdsAreThoseOfKeras) {
  const auto text = ReadFile(InSource("tests/support/data/keras_text/layers.json"));
  ASSERT_TRUE(text.ok()) << text.status();
  for (const json& layer : json::parse(*text)) {
    SCOPED_TRACE(layer["config"].dump());
    const auto model = ModelWith(layer["config"]);
    ASSERT_TRUE(model.ok()) << model.status();
    const ModelInput& input = model->inputs()[0];
    EXPECT_TRUE(input.text);
    EXPECT_EQ(input.shape, Shape({static_cast<int64_t>(layer["ids"][0].size())}));
    for (size_t i = 0; i < layer["texts"].size(); ++i) {
      std::vector<int64_t> ids;
      input.map->AppendIds(layer["texts"][i].get<std::string>(), ids);
      EXPECT_EQ(ids, layer["ids"][i].get<std::vector<int64_t>>()) << layer["texts"][i];
    }
  }
}

TEST(TextVectorization, VectorsAndRaggedIdsCountAllPieces) {
  for (const json& config : {json{{"vocabulary", {"a"}}, {"output_mode", "count"}},
                             json{{"vocabulary", {"a"}}, {"ragged", true}}}) {
    const auto model = ModelWith(config);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_TRUE(model->inputs()[0].ragged);
    std::vector<int64_t> ids;
    model->inputs()[0].map->AppendIds("a b A", ids);
    const int64_t first = config.contains("ragged") ? 2 : 1;  // after the ids of padding and of unknown words
    EXPECT_THAT(ids, ElementsAre(first, first - 1, first));
  }
}

TEST(TextVectorization, UnsupportedOptionsAreRefused) {
  EXPECT_THAT(VectorizationFault({{"vocabulary", {"a"}}}),
              HasSubstr("output_sequence_length: required, unless ragged is true"));
  EXPECT_THAT(VectorizationFault({{"output_sequence_length", 3}}),
              HasSubstr("vocabulary: the layer has none: call adapt()"));
  EXPECT_THAT(
      VectorizationFault({{"vocabulary", {"a"}}, {"output_mode", "count"}, {"output_sequence_length", 3}}),
      HasSubstr("output_sequence_length: needs the output_mode \"int\""));
  EXPECT_THAT(
      VectorizationFault({{"vocabulary", {"a"}}, {"output_sequence_length", 3}, {"standardize", "upper"}}),
      HasSubstr("standardize: "));
  EXPECT_THAT(VectorizationFault({{"vocabulary", {"a"}}, {"output_sequence_length", 3}, {"ngrams", {0}}}),
              HasSubstr("ngrams: holds 0"));
  EXPECT_THAT(VectorizationFault({{"vocabulary", {"a"}}, {"output_sequence_length", 3}}, 2),
              HasSubstr("input 'x' must have one text for each example"));
}

TEST(DivideText, BytesThatAreNotUtf8AreCharacters) {
  const TextDivision characters = {.split = TextDivision::Split::kCharacter};
  EXPECT_THAT(DivideText("a\xC3\xA9\xC3(\xFF", characters), ElementsAre("a", "\xC3\xA9", "\xC3", "\xFF"));
  EXPECT_THAT(DivideText("", characters), IsEmpty());
}

}  // namespace
}  // namespace cairn::nn
