// The results of AdaptModel(), against those of Keras' adapt() (keras_adapt/cases.json), and refusals.
#include "worker/adapt/adapt_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/core/files.h"
#include "data/array/zip_file.h"
#include "nn/model.h"
#include "tests/support/source_dir.h"
#include "tests/unit/data/data_files.h"
#include "worker/export/model_source.h"

namespace cairn::worker {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using data::TemporaryDirectory;

std::string Field(const json& value) {
  if (!value.is_string()) return value.dump();
  return absl::StrCat("\"", absl::StrReplaceAll(value.get<std::string>(), {{"\"", "\"\""}}), "\"");
}

// A CSV file whose last column is the label.
std::string Csv(const json& rows) {
  std::string text;
  for (size_t i = 0; i < rows[0].size(); ++i) absl::StrAppend(&text, "f", i, ",");
  text += "label\n";
  for (const json& row : rows) {
    for (const json& value : row) absl::StrAppend(&text, Field(value), ",");
    text += "0\n";
  }
  return text;
}

// A model that begins with the layer, which reads examples of the shape.
json ModelOf(json layer, const json& shape, const char* dtype) {
  json batch_shape = {nullptr};
  for (const json& extent : shape) batch_shape.push_back(extent);
  json layers = {
      {{"class_name", "InputLayer"}, {"config", {{"batch_shape", batch_shape}, {"dtype", dtype}}}}};
  const std::string class_name = layer["class_name"];
  const bool ids = class_name != "Normalization" && layer["config"].value("output_mode", "int") == "int";
  layers.push_back(std::move(layer));
  if (ids)
    layers.push_back({{"class_name", "Embedding"}, {"config", {{"input_dim", 99}, {"output_dim", 1}}}});
  layers.push_back({{"class_name", "Flatten"}});
  return {{"class_name", "Sequential"}, {"config", {{"layers", layers}}}};
}

class AdaptModelTest : public testing::Test {
 protected:
  absl::StatusOr<AdaptedModel> Adapt(const json& model, const std::string& csv) {
    EXPECT_TRUE(WriteFileAtomically(dir_ / "train.csv", csv).ok());
    EXPECT_TRUE(WriteFileAtomically(dir_ / "model.json", model.dump()).ok());
    TrainOptions options;
    options.model = dir_ / "model.json";
    options.data.path = dir_.path();
    return AdaptModel(options);
  }
  std::string FaultOf(const json& model, const std::string& csv) {
    return std::string(Adapt(model, csv).status().message());
  }

  const TemporaryDirectory dir_;
};

// Integers and strings must be equal; floats may differ by the rounding of Keras' sums in float32.
void ExpectSame(const json& ours, const json& keras) {
  if (keras.is_number_float()) {
    EXPECT_NEAR(ours.get<double>(), keras.get<double>(), 2e-6 * (1 + std::abs(keras.get<double>())));
  } else if (keras.is_array()) {
    ASSERT_EQ(ours.size(), keras.size()) << ours.dump();
    for (size_t i = 0; i < keras.size(); ++i) ExpectSame(ours[i], keras[i]);
  } else {
    EXPECT_EQ(ours, keras);
  }
}

TEST_F(AdaptModelTest, LearnsWhatKerasLearns) {
  const auto text = ReadFile(InSource("tests/support/data/keras_adapt/cases.json"));
  ASSERT_TRUE(text.ok()) << text.status();
  for (const json& each : json::parse(*text)) {
    SCOPED_TRACE(each["class_name"].dump() + each["config"].dump());
    const std::string dtype = each["dtype"];
    const json model = ModelOf({{"class_name", each["class_name"]}, {"config", each["config"]}},
                               each["shape"], dtype.c_str());
    const auto adapted = Adapt(model, Csv(each["rows"]));
    ASSERT_TRUE(adapted.ok()) << adapted.status();
    const json config = json::parse(adapted->json)["config"]["layers"][1]["config"];
    for (const auto& [field, value] : each["learned"].items()) {
      SCOPED_TRACE(field);
      ExpectSame(config[field], value);
    }
  }
}

TEST_F(AdaptModelTest, KeepsTheValuesOfLayersThatHaveThem) {
  json model = ModelOf({{"class_name", "StringLookup"}, {"config", {{"vocabulary", {"x"}}}}}, {1}, "string");
  EXPECT_THAT(FaultOf(model, "a,label\nb,0\n"),
              HasSubstr("model.json: every layer has what adapt() would find"));
  model["config"]["layers"][1]["config"] = {{"name", "cities"}};
  const auto adapted = Adapt(model, "a,label\nb,0\nc,1\nb,1\n");
  ASSERT_TRUE(adapted.ok()) << adapted.status();
  EXPECT_THAT(adapted->notes, ElementsAre("layer 'cities' (StringLookup): 2 tokens"));
  EXPECT_TRUE(nn::Model::FromJson(adapted->json, "adapted").ok());
  EXPECT_THAT(FaultOf(json::parse(adapted->json), "a,label\nb,0\n"), HasSubstr("every layer has"));
}

TEST_F(AdaptModelTest, LayersBehindADiscretizationMayHaveItsShape) {
  json model =
      ModelOf({{"class_name", "Discretization"}, {"config", {{"num_bins", 4}, {"output_mode", "one_hot"}}}},
              {1}, "float32");
  model["config"]["layers"].push_back({{"class_name", "Reshape"}, {"config", {{"target_shape", {2, 2}}}}});
  const auto adapted = Adapt(model, "a,label\n1,0\n2,0\n3,0\n4,0\n");
  ASSERT_TRUE(adapted.ok()) << adapted.status();
  EXPECT_THAT(adapted->notes, ElementsAre("layer 'Discretization 1' (Discretization): 3 boundaries"));
}

TEST_F(AdaptModelTest, RefusesWhatCannotBeLearned) {
  const auto lookup = [](const json& config) {
    return ModelOf({{"class_name", "StringLookup"}, {"config", config}}, {1}, "string");
  };
  EXPECT_THAT(FaultOf(lookup({{"mask_token", "b"}}), "a,label\nb,0\n"),
              HasSubstr("layer 'StringLookup 1' (StringLookup): there are no tokens in the training set"));
  EXPECT_THAT(FaultOf(lookup({{"name", "s"}}), "a,label\n\xFF\xFE\xFA,0\n"), HasSubstr("is not UTF-8"));
  const auto numbers = [](const char* class_name, const json& config) {
    return ModelOf({{"class_name", class_name}, {"config", config}}, {1}, "float32");
  };
  EXPECT_THAT(FaultOf(numbers("Discretization", {{"num_bins", 0}}), "a,label\n1,0\n"),
              HasSubstr("num_bins: expected an integer from 1 to 1000000, got 0"));
  EXPECT_THAT(FaultOf(numbers("Discretization", {{"num_bins", 2}, {"epsilon", 0}}), "a,label\n1,0\n"),
              HasSubstr("epsilon: expected 1e-6 to 1, got 0"));
  EXPECT_THAT(FaultOf(numbers("Discretization", json::object()), "a,label\n1,0\n"), HasSubstr("num_bins: "));
  json model = numbers("Normalization", {{"name", "norm"}});
  auto& layers = model["config"]["layers"];
  layers.insert(layers.begin() + 1, json{{"class_name", "Rescaling"}, {"config", {{"scale", 2}}}});
  EXPECT_THAT(FaultOf(model, "a,label\n1,0\n"),
              HasSubstr("layer 'norm' (Normalization): reads no input of the model"));
  json inner = {{"class_name", "Sequential"},
                {"config", {{"layers", numbers("Normalization", {{"name", "n"}})["config"]["layers"]}}}};
  model["config"]["layers"] = {layers[0], inner};
  EXPECT_THAT(FaultOf(model, "a,label\n1,0\n"),
              HasSubstr("layer '/n' (Normalization): is in a model within the model that has no name"));
}

// The archives are those of keras_adapt/make_archives.py, which prints the values.
class AdaptArchiveTest : public AdaptModelTest {
 protected:
  absl::StatusOr<AdaptedModel> AdaptFile(const std::string& path) {
    EXPECT_TRUE(WriteFileAtomically(dir_ / "train.csv",
                                    "city,size,label\noslo,3,0\nrome,5,0\noslo,-1,0\nbern,0.5,0\n")
                    .ok());
    TrainOptions options;
    options.model = path;
    options.data.path = dir_.path();
    return AdaptModel(options);
  }
  static void ExpectValuesOfKeras(const AdaptedModel& adapted) {
    EXPECT_THAT(adapted.notes,
                ElementsAre("layer 'embedded/cities' (StringLookup): 3 tokens",
                            "layer 'scaled/norm' (Normalization): mean and variance of 1 feature"));
    const json model = json::parse(adapted.json);
    for (const json& layer : model["config"]["layers"]) {
      if (layer["config"]["name"] == "embedded") {
        EXPECT_EQ(layer["config"]["layers"][1]["config"]["vocabulary"], json({"oslo", "rome", "bern"}));
      } else if (layer["config"]["name"] == "scaled") {
        EXPECT_EQ(layer["config"]["layers"][1]["config"]["mean"], json({1.875}));
        EXPECT_EQ(layer["config"]["layers"][1]["config"]["variance"], json({5.296875}));
      }
    }
    EXPECT_TRUE(nn::Model::FromJson(adapted.json, "adapted").ok());
  }
};

TEST_F(AdaptArchiveTest, LayersOfModelsWithinTheModelLearnWhatKerasLearns) {
  const auto adapted = AdaptFile(InSource("tests/support/data/keras_adapt/nested.keras"));
  ASSERT_TRUE(adapted.ok()) << adapted.status();
  ExpectValuesOfKeras(*adapted);
  const auto zip = data::ZipFile::Open(InSource("tests/support/data/keras_adapt/nested.keras"));
  ASSERT_TRUE(zip.ok()) << zip.status();
  const auto config = ReadMember(*zip, "nested.keras", kConfigMember);
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_TRUE(WriteFileAtomically(dir_ / "model.json",
                                  {reinterpret_cast<const char*>(config->data()), config->size()})
                  .ok());
  const auto from_json = AdaptFile(dir_ / "model.json");
  ASSERT_TRUE(from_json.ok()) << from_json.status();
  ExpectValuesOfKeras(*from_json);
}

TEST_F(AdaptArchiveTest, ValuesOfTheArchiveAreKept) {
  EXPECT_THAT(
      std::string(
          AdaptFile(InSource("tests/support/data/keras_adapt/nested_adapted.keras")).status().message()),
      HasSubstr("every layer has what adapt() would find"));
}

}  // namespace
}  // namespace cairn::worker
