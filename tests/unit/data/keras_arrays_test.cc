// Data sets of arrays with Keras' names, in an .npz archive or one .npy file for each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/dataset.h"
#include "tests/unit/data/examples.h"
#include "tests/unit/data/npz_files.h"

namespace cairn::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::map<std::string, std::string> SmallMnist() {
  return {{"x_train.npy", Npy("|u1", "(2, 2, 2)", Bytes({0, 51, 102, 255, 1, 2, 3, 4}))},
          {"y_train.npy", Npy("|u1", "(2,)", Bytes({3, 1}))},
          {"x_test.npy", Npy("|u1", "(1, 2, 2)", Bytes({255, 255, 0, 0}))},
          {"y_test.npy", Npy("<i8", "(1,)", Bytes({9, 0, 0, 0, 0, 0, 0, 0}))}};
}

TEST(LoadTrainingDataFromNpz, ReadsKerasMnistFromTheFileOrItsDirectory) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "mnist.npz", SmallMnist(), ZIP_CM_DEFLATE);
  for (const std::string& path : {dir.path(), dir / "mnist.npz"}) {
    const auto data = LoadTrainingData({.path = path});
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->train->example_shape(), Shape({2, 2}));
    EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(3));
    EXPECT_THAT(ReadExample(*data->train, 0).inputs,
                ElementsAre(0.0f, 51.0f / 255.0f, 102.0f / 255.0f, 1.0f));
    EXPECT_THAT(ReadExample(*data->validation, 0).target, ElementsAre(9));
  }
}

TEST(LoadTrainingDataFromNpz, TheValidationSetMayBeMissing) {
  const TemporaryDirectory dir;
  auto members = SmallMnist();
  members.erase("x_test.npy");
  WriteNpz(dir / "a.npz", members);
  EXPECT_THAT(std::string(LoadTrainingData({.path = dir / "a.npz"}).status().message()),
              HasSubstr("has no array x_test; it has: x_train, y_test, y_train"));
  members.erase("y_test.npy");
  WriteNpz(dir / "a.npz", members);
  const auto data = LoadTrainingData({.path = dir / "a.npz"});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->validation, nullptr);
}

std::map<std::string, std::string> TrainingArrays() {
  auto members = SmallMnist();
  members.erase("x_test.npy");
  members.erase("y_test.npy");
  return members;
}

TEST(LoadTrainingDataFromNpz, TheValidationSetHasAnyOfItsUsualNames) {
  const TemporaryDirectory dir;
  for (const std::string set : {"val", "valid", "validation", "test"}) {
    for (const std::string initial : {"x", "X"}) {
      auto members = TrainingArrays();
      members[initial + "_" + set + ".npy"] = SmallMnist()["x_test.npy"];
      members["y_" + set + ".npy"] = SmallMnist()["y_test.npy"];
      WriteNpz(dir / "a.npz", members);
      const auto data = LoadTrainingData({.path = dir / "a.npz"});
      ASSERT_TRUE(data.ok()) << data.status();
      ASSERT_NE(data->validation, nullptr) << set;
      EXPECT_EQ(data->validation->inputs_name(), dir / "a.npz: " + initial + "_" + set);
      EXPECT_THAT(data->remarks, IsEmpty());
    }
  }
}

TEST(LoadTrainingDataFromNpz, ValidationIsPreferredToTestAndUnusedArraysAreNamed) {
  const TemporaryDirectory dir;
  auto members = SmallMnist();
  members["x_val.npy"] = members["x_test.npy"];
  members["y_val.npy"] = members["y_test.npy"];
  members["x_extra.npy"] = members["x_test.npy"];
  WriteNpz(dir / "a.npz", members);
  const auto data = LoadTrainingData({.path = dir / "a.npz"});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->validation->inputs_name(), dir / "a.npz: x_val");
  EXPECT_THAT(data->remarks, ElementsAre(HasSubstr("unused arrays: x_extra, x_test, y_test")));
}

TEST(LoadTrainingDataFromNpz, AnIncompleteSetIsRefused) {
  const TemporaryDirectory dir;
  auto members = TrainingArrays();
  members["x_val.npy"] = SmallMnist()["x_test.npy"];
  WriteNpz(dir / "a.npz", members);
  EXPECT_THAT(std::string(LoadTrainingData({.path = dir / "a.npz"}).status().message()),
              HasSubstr("has no array y_val; it has: x_train, x_val, y_train"));
}

TEST(LoadTrainingDataFromNpz, TwoSpellingsOfOneArrayAreRefused) {
  const TemporaryDirectory dir;
  auto members = TrainingArrays();
  members["X_train.npy"] = members["x_train.npy"];
  WriteNpz(dir / "a.npz", members);
  EXPECT_THAT(std::string(LoadTrainingData({.path = dir / "a.npz"}).status().message()),
              HasSubstr("a.npz: x_train exists in addition to X_train"));
}

TEST(LoadTrainingDataFromNpz, ALayerThatScalesBytesGetsThemUnchanged) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", SmallMnist());
  DataOptions options = {.path = dir / "a.npz", .raw_bytes = {true}};
  const auto raw = LoadTrainingData(options);
  ASSERT_TRUE(raw.ok()) << raw.status();
  EXPECT_THAT(ReadExample(*raw->train, 0).inputs, ElementsAre(0, 51, 102, 255));
  EXPECT_THAT(ReadExample(*raw->validation, 0).inputs, ElementsAre(255, 255, 0, 0));
  EXPECT_THAT(raw->byte_inputs, ElementsAre(true));
  options.input_scale = 2;
  EXPECT_THAT(ReadExample(*LoadTrainingData(options)->train, 0).inputs, ElementsAre(0, 102, 204, 510));
}

TEST(LoadTrainingDataFromNpz, EachInputDecidesHowItsBytesAreScaled) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x_train_image.npy", Npy("|u1", "(1, 1, 2)", Bytes({0, 255}))},
                           {"x_train_word.npy", Npy("|u1", "(1, 1)", Bytes({7}))},
                           {"y_train.npy", Npy("|u1", "(1,)", Bytes({0}))}});
  DataOptions options = {.path = dir / "a.npz",
                         .raw_bytes = {true, false},
                         .input_names = {"word", "image"},
                         .input_shapes = {{1}, {1, 2, 1}}};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(7, 0, 1));
  options.input_shapes = {{1}, {2, 3}};
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("x_train_image: examples have shape [1,2], input 'image' of the model takes [2,3]"));
  WriteNpz(dir / "a.npz", {{"x_train.npy", Npy("|u1", "(1, 3)", Bytes({7, 0, 255}))},
                           {"y_train.npy", Npy("|u1", "(1,)", Bytes({0}))}});
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("input 'word' takes them unchanged and input 'image' scaled"));
}

std::string Int64s(absl::Span<const int64_t> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)};
}

TEST(LoadTrainingDataFromNpz, IntegersReachAnInputOfIntegersAsTheyAre) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x_train.npy", Npy("<i8", "(2, 2)", Int64s(kIds))},
                           {"y_train.npy", Npy("|u1", "(2,)", Bytes({0, 1}))}});
  const auto data = LoadTrainingData({.path = dir / "a.npz",
                                      .input_scale = 0.5f,
                                      .input_names = {"ids"},
                                      .input_shapes = {{2}},
                                      .input_types = {DType::kInt64}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadIds(*data->train, 0), ElementsAre(kIds[0], kIds[1]));
  EXPECT_THAT(ReadIds(*data->train, 1), ElementsAre(kIds[2], kIds[3]));
  EXPECT_TRUE(data->train->status().ok());
}

TEST(LoadTrainingDataFromNpz, AnInputOfIntegersRefusesOtherNumbers) {
  const TemporaryDirectory dir;
  const DataOptions options = {
      .path = dir / "a.npz", .input_names = {"ids"}, .input_shapes = {{2}}, .input_types = {DType::kInt32}};
  const auto refusal = [&](const std::string& array) {
    WriteNpz(dir / "a.npz", {{"x_train.npy", array}, {"y_train.npy", Npy("|u1", "(1,)", Bytes({0}))}});
    const auto data = LoadTrainingData(options);
    EXPECT_TRUE(data.ok()) << data.status();
    ReadIds(*data->train, 0);
    return std::string(data->train->status().message());
  };
  EXPECT_THAT(refusal(Npy("<i8", "(1, 2)", Int64s({3, int64_t{1} << 31}))),
              HasSubstr("a.npz: x_train: example 0: value 1 is 2147483648, and the model's input takes whole "
                        "numbers (int32)"));
  EXPECT_THAT(refusal(Npy("<f4", "(1, 2)", Bytes({0, 0, 0xC0, 0x3F, 0, 0, 0, 0}))),
              HasSubstr("value 0 is 1.5, and"));
  EXPECT_EQ(refusal(Npy("<f4", "(1, 2)", Bytes({0, 0, 0x80, 0x3F, 0, 0, 0, 0}))), "");
}

TEST(LoadTrainingDataFromNpz, FloatAndIntegerInputsKeepTheirTypes) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x_train_id.npy", Npy("<i8", "(4, 1)", Int64s(kIds))},
                           {"x_train_image.npy", Npy("|u1", "(4, 2)", Bytes({0, 255, 1, 2, 3, 4, 5, 51}))},
                           {"y_train.npy", Npy("|u1", "(4,)", Bytes({0, 1, 0, 1}))}});
  const auto data = LoadTrainingData({.path = dir / "a.npz",
                                      .raw_bytes = {false, true},
                                      .input_names = {"image", "id"},
                                      .input_shapes = {{2}, {1}},
                                      .input_types = {DType::kFloat32, DType::kInt64}});
  ASSERT_TRUE(data.ok()) << data.status();
  InputRows rows(data->train->input_specs(), 1);
  float target = 0;
  data->train->Read(3, rows.Row(0), {&target, 1});
  EXPECT_THAT(rows.First(1)[0].floats(), ElementsAre(5.0f / 255, 51.0f / 255));
  EXPECT_EQ(rows.First(1)[1].Integer(0), kIds[3]);
}

constexpr int64_t kSplits[] = {0, 3, 4};

TEST(LoadTrainingDataFromNpz, ARaggedInputIsValuesAndRowSplits) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x_train.npy", Npy("<i8", "(4,)", Int64s(kIds))},
                           {"x_train_row_splits.npy", Npy("<i8", "(3,)", Int64s(kSplits))},
                           {"y_train.npy", Npy("|u1", "(2,)", Bytes({0, 1}))}});
  const auto data = LoadTrainingData({.path = dir / "a.npz",
                                      .input_names = {"ids"},
                                      .input_shapes = {{1}},
                                      .input_types = {DType::kInt64},
                                      .ragged_inputs = {true}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->remarks, testing::IsEmpty());
  InputRows rows(data->train->input_specs(), 2);
  float target = 0;
  for (int64_t row : {0, 1}) data->train->Read(row, rows.Row(row), {&target, 1});
  const TensorView ids = rows.First(2)[0];
  EXPECT_THAT(ids.row_splits, ElementsAre(0, 3, 4));
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(ids.Integer(i), kIds[i]);
}

std::string BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(LoadTrainingDataFromNpz, RaggedIdsHaveWeightsAndMayBeNone) {
  const TemporaryDirectory dir;
  const auto load = [&](const std::map<std::string, std::string>& more) {
    std::map<std::string, std::string> members = {
        {"x_train_ids.npy", Npy("<i8", "(3,)", Int64s({7, 8, 9}))},
        {"x_train_ids_row_splits.npy", Npy("<i8", "(4,)", Int64s({0, 1, 1, 3}))},
        {"x_train_w.npy", Npy("<f4", "(3,)", BytesOf({0.5f, 2, -1}))},
        {"y_train.npy", Npy("|u1", "(3,)", Bytes({0, 1, 0}))}};
    members.insert(more.begin(), more.end());
    WriteNpz(dir / "a.npz", members);
    return LoadTrainingData({.path = dir / "a.npz",
                             .input_names = {"ids", "w"},
                             .input_shapes = {{1}, {1}},
                             .input_types = {DType::kInt64, DType::kFloat32},
                             .ragged_inputs = {true, true},
                             .weights_of = {-1, 0}});
  };
  const std::map<std::string, std::string> cases[] = {
      {}, {{"x_train_w_row_splits.npy", Npy("<i8", "(4,)", Int64s({0, 1, 1, 3}))}}};
  for (const auto& more : cases) {
    const auto data = load(more);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_THAT(data->remarks, testing::IsEmpty());
    InputRows rows(data->train->input_specs(), 3);
    float target = 0;
    for (int64_t row : {0, 1, 2}) data->train->Read(row, rows.Row(row), {&target, 1});
    const TensorView ids = rows.First(3)[0], weights = rows.First(3)[1];
    EXPECT_THAT(ids.row_splits, ElementsAre(0, 1, 1, 3));
    EXPECT_THAT(weights.row_splits, ElementsAre(0, 1, 1, 3));
    EXPECT_EQ(ids.Integer(2), 9);
    EXPECT_THAT(weights.floats(), ElementsAre(0.5f, 2, -1));
  }
  const auto differs = load({{"x_train_w_row_splits.npy", Npy("<i8", "(4,)", Int64s({0, 1, 2, 3}))}});
  EXPECT_THAT(std::string(differs.status().message()),
              HasSubstr("x_train_w: example 1 has another number of weights than it has ids in"));
}

TEST(LoadTrainingDataFromNpz, BrokenRaggedInputsAreRefused) {
  const TemporaryDirectory dir;
  const auto refusal = [&](const std::map<std::string, std::string>& arrays) {
    auto members = arrays;
    members["y_train.npy"] = Npy("|u1", "(2,)", Bytes({0, 1}));
    WriteNpz(dir / "a.npz", members);
    return std::string(LoadTrainingData({.path = dir / "a.npz",
                                         .input_names = {"ids"},
                                         .input_shapes = {{1}},
                                         .input_types = {DType::kInt64},
                                         .ragged_inputs = {true}})
                           .status()
                           .message());
  };
  const std::string values = Npy("<i8", "(4,)", Int64s(kIds));
  const auto with = [&](std::vector<int64_t> splits) {
    return refusal(
        {{"x_train.npy", values},
         {"x_train_row_splits.npy", Npy("<i8", "(" + std::to_string(splits.size()) + ",)", Int64s(splits))}});
  };
  EXPECT_THAT(refusal({{"x_train.npy", values}}), HasSubstr("x_train_row_splits"));
  EXPECT_THAT(with({0, 3, 5}),
              HasSubstr("x_train: its row splits go from 0 to 5, not from 0 to its 4 values"));
  EXPECT_THAT(with({0, 5, 4}), HasSubstr("x_train: example 1: its row splits descend"));
  EXPECT_THAT(with({4}), HasSubstr("not integers [examples + 1]"));
  EXPECT_THAT(refusal({{"x_train.npy", Npy("<f4", "(2, 1)", std::string(8, '\0'))},
                       {"x_train_row_splits.npy", Npy("<i8", "(3,)", Int64s(kSplits))}}),
              HasSubstr("is float32 [2,1], but the values of a ragged input are integers along one axis"));
}

TEST(LoadTrainingDataFromNpz, LabelsMayBeAColumnAsInCifar) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x_train.npy", Npy("<f8", "(2, 1, 1, 3)", std::string(48, '\0'))},
                           {"y_train.npy", Npy("|u1", "(2, 1)", Bytes({5, 6}))}});
  const auto data = LoadTrainingData({.path = dir / "a.npz"});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->example_shape(), Shape({1, 1, 3}));
  EXPECT_THAT(ReadExample(*data->train, 1).target, ElementsAre(6));
}

TEST(LoadTrainingDataFromNpz, ExamplesMayHaveWeights) {
  const TemporaryDirectory dir;
  auto members = SmallMnist();
  members["sample_weight_train.npy"] = Npy("<f4", "(2,)", Bytes({0, 0, 0x00, 0x3F, 0, 0, 0, 0x40}));
  WriteNpz(dir / "a.npz", members);
  const auto data = LoadTrainingData({.path = dir / "a.npz"});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_TRUE(data->train->weighted());
  EXPECT_EQ(ReadExample(*data->train, 0).weight, 0.5f);
  EXPECT_EQ(ReadExample(*data->train, 1).weight, 2.0f);
  EXPECT_FALSE(data->validation->weighted());
}

TEST(LoadTrainingDataFromNpz, StepsOfExamplesMayHaveWeights) {
  const TemporaryDirectory dir;
  const auto load = [&](const std::string& shape, const std::string& bytes, bool validation = true) {
    auto members = SmallMnist();
    const std::string name = validation ? "sample_weight_train.npy" : "sample_weight_test.npy";
    members[name] = Npy("|u1", shape, bytes);
    if (!validation) members["sample_weight_train.npy"] = Npy("|u1", "(2,)", Bytes({7, 8}));
    WriteNpz(dir / "a.npz", members);
    return LoadTrainingData({.path = dir / "a.npz"});
  };
  for (const char* const shape : {"(2, 3)", "(2, 3, 1)"}) {
    const auto data = load(shape, Bytes({1, 2, 3, 4, 5, 6}));
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->train->weights()->parts[0].shape, Shape({3}));
    EXPECT_THAT(data->train->WeightsOf(1), ElementsAre(4, 5, 6));
    EXPECT_FALSE(data->validation->weighted());
  }
  // A batch has weights of the same form in training and validation.
  const auto spread = load("(1, 3)", Bytes({1, 2, 3}), /*validation=*/false);
  ASSERT_TRUE(spread.ok()) << spread.status();
  EXPECT_THAT(spread->train->WeightsOf(1), ElementsAre(8, 8, 8));
  EXPECT_THAT(std::string(load("(3, 3)", std::string(9, '\1')).status().message()),
              HasSubstr("sample_weight_train has 3 weights"));
  EXPECT_THAT(std::string(load("(2, 0)", "").status().message()),
              HasSubstr("sample_weight_train: weights have the shape [2,0]"));
}

TEST(LoadTrainingDataFromNpz, EachOutputMayHaveWeights) {
  const TemporaryDirectory dir;
  const auto load = [&](const std::map<std::string, std::string>& weights) {
    std::map<std::string, std::string> members = {
        {"x_train.npy", Npy("|u1", "(2, 1)", Bytes({1, 2}))},
        {"y_train.npy", Npy("|u1", "(2, 3)", Bytes({0, 1, 2, 3, 4, 5}))},
        {"x_val.npy", Npy("|u1", "(1, 1)", Bytes({3}))},
        {"y_val.npy", Npy("|u1", "(1, 3)", Bytes({6, 7, 8}))}};
    members.insert(weights.begin(), weights.end());
    WriteNpz(dir / "a.npz", members);
    return LoadTrainingData({.path = dir / "a.npz", .target_parts = {{"kind", 1}, {"box", 2}}});
  };
  const std::string of_rows = Npy("|u1", "(2, 2)", Bytes({5, 6, 7, 8}));
  const auto both = load({{"sample_weight_train_kind.npy", Npy("|u1", "(2,)", Bytes({3, 4}))},
                          {"sample_weight_train_box.npy", of_rows}});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_THAT(both->remarks, IsEmpty());
  EXPECT_THAT(both->train->WeightsOf(0), ElementsAre(3, 5, 6));
  EXPECT_THAT(both->train->WeightsOf(1), ElementsAre(4, 7, 8));
  EXPECT_EQ(both->train->weights()->PartOf(1).shape, Shape({2}));
  EXPECT_FALSE(both->validation->weighted());
  // An output without an array, and a set with weights for all outputs.
  const auto some = load(
      {{"sample_weight_train_box.npy", of_rows}, {"sample_weight_val.npy", Npy("|u1", "(1,)", Bytes({9}))}});
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_THAT(some->train->WeightsOf(1), ElementsAre(1, 7, 8));
  EXPECT_THAT(some->validation->WeightsOf(0), ElementsAre(9, 9, 9));

  const auto fault = [&](const std::map<std::string, std::string>& weights) {
    return std::string(load(weights).status().message());
  };
  EXPECT_THAT(fault({{"sample_weight_train_box.npy", of_rows}, {"sample_weight_train.npy", of_rows}}),
              HasSubstr("sample_weight_train_box exists in addition to sample_weight_train"));
  EXPECT_THAT(fault({{"sample_weight_train_box.npy", of_rows},
                     {"sample_weight_train_kind.npy", Npy("|u1", "(3,)", Bytes({1, 2, 3}))}}),
              AllOf(HasSubstr("sample_weight_train_box: 2 weights, but "),
                    HasSubstr("sample_weight_train_kind has 3")));
  EXPECT_THAT(fault({{"sample_weight_train_box.npy", Npy("|u1", "(3,)", Bytes({1, 2, 3}))}}),
              HasSubstr("sample_weight_train_box has 3 weights"));
}

TEST(LoadTrainingDataFromNpz, TargetsMayBeMissingIfOnlyShapesAreNeeded) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x_train.npy", Npy("|u1", "(2, 3)", Bytes({1, 2, 3, 4, 5, 6}))},
                           {"y_train_kind.npy", Npy("|u1", "(2,)", Bytes({0, 1}))}});
  const auto data = LoadTrainingData({.path = dir / "a.npz", .only_shapes = true});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->example_shape(), Shape({3}));
  EXPECT_THAT(std::string(LoadTrainingData({.path = dir / "a.npz"}).status().message()),
              HasSubstr("has no array y_train"));
}

TEST(LoadTrainingDataFromNpz, SeveralInputsAreConcatenatedInTheModelsOrder) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x_train_image.npy", Npy("|u1", "(2, 1, 2)", Bytes({0, 255, 51, 102}))},
                           {"x_train_age.npy", Npy("|i1", "(2,)", Bytes({7, 9}))},
                           {"y_train.npy", Npy("|u1", "(2,)", Bytes({0, 1}))}});
  const auto data = LoadTrainingData({.path = dir / "a.npz", .input_names = {"age", "image"}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->example_shape(), Shape({3}));
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(7, 0, 1));
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(9, 51.0f / 255.0f, 102.0f / 255.0f));
  EXPECT_THAT(
      std::string(
          LoadTrainingData({.path = dir / "a.npz", .input_names = {"age", "size"}}).status().message()),
      HasSubstr("has no array x_train_size; it has: x_train_age, x_train_image, y_train"));
}

TEST(LoadTrainingDataFromNpz, SeveralInputsMayBeJoinedInTheFile) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "mnist.npz", SmallMnist());
  const auto data = LoadTrainingData({.path = dir.path(), .input_names = {"left", "right"}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->example_shape().num_elements(), 4);
}

// The same arrays in separate files, which are mapped.
TEST(LoadTrainingDataFromNpy, ReadsOneFileForEachArray) {
  const TemporaryDirectory dir;
  for (const auto& [name, contents] : SmallMnist()) WriteText(dir / name, contents);
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->example_shape(), Shape({2, 2}));
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(0.0f, 51.0f / 255.0f, 102.0f / 255.0f, 1.0f));
  EXPECT_THAT(ReadExample(*data->train, 1).target, ElementsAre(1));
  EXPECT_THAT(ReadExample(*data->validation, 0).target, ElementsAre(9));
}

TEST(LoadTrainingDataFromNpy, FilesMayBeThoseOfSeveralInputsAndOutputsOnly) {
  const TemporaryDirectory dir;
  for (const char* name : {"x_train_age", "x_train_size"})
    WriteText(dir / absl::StrCat(name, ".npy"), Npy("|i1", "(2, 1)", Bytes({7, 9})));
  for (const char* name : {"y_train_kind", "y_train_box"})
    WriteText(dir / absl::StrCat(name, ".npy"), Npy("|u1", "(2, 1)", Bytes({0, 1})));
  const auto data = LoadTrainingData(
      {.path = dir.path(), .input_names = {"age", "size"}, .target_parts = {{"kind", 1}, {"box", 1}}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->remarks, IsEmpty());
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(9, 9));
  EXPECT_THAT(ReadExample(*data->train, 1).target, ElementsAre(1, 1));
}

TEST(LoadTrainingDataFromNpy, BigEndianNumbersAreConverted) {
  const TemporaryDirectory dir;
  WriteText(dir / "x_train.npy", Npy(">f4", "(1, 2)", Bytes({0x3F, 0xC0, 0, 0, 0xC0, 0, 0, 0})));
  WriteText(dir / "y_train.npy", Npy(">i2", "(1,)", Bytes({0, 3})));
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(3));
}

TEST(LoadTrainingDataFromNpz, EveryTypeOfInputBecomesFloats) {
  const TemporaryDirectory dir;
  const auto load = [&](const std::string& x) {
    WriteNpz(dir / "a.npz", {{"x_train.npy", x}, {"y_train.npy", Npy("|b1", "(1,)", Bytes({1}))}});
    auto data = LoadTrainingData({.path = dir / "a.npz"});
    EXPECT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->train->num_classes(), 2) << "True is class 1";
    return ReadExample(*data->train, 0).inputs;
  };
  EXPECT_THAT(load(Npy("<f2", "(1, 2)", Bytes({0, 0x3C, 0, 0xC5}))), ElementsAre(1, -5));
  EXPECT_THAT(load(Npy("<u2", "(1, 2)", Bytes({0xFF, 0xFF, 1, 0}))), ElementsAre(65535, 1));
  EXPECT_THAT(load(Npy("|b1", "(1, 2)", Bytes({1, 0}))), ElementsAre(1, 0)) << "bool is not divided by 255";
}

TEST(LoadTrainingDataFromNpz, TargetsMayHaveOneValueForEachPixel) {
  const TemporaryDirectory dir;
  const std::string x = Npy("|u1", "(1, 2, 2, 1)", Bytes({1, 2, 3, 4}));
  const auto load = [&](const std::string& y, const DataOptions& options = {}) {
    WriteNpz(dir / "a.npz", {{"x_train.npy", x}, {"y_train.npy", y}});
    DataOptions full = options;
    full.path = dir / "a.npz";
    return LoadTrainingData(full);
  };
  const auto mask = load(Npy("|u1", "(1, 2, 2)", Bytes({0, 2, 1, 0})));
  ASSERT_TRUE(mask.ok()) << mask.status();
  EXPECT_EQ(mask->train->target_info().shape, Shape({2, 2}));
  EXPECT_EQ(mask->train->target_info().position_classes, 3);
  EXPECT_EQ(mask->train->num_classes(), 0);
  EXPECT_THAT(ReadExample(*mask->train, 0).target, ElementsAre(0, 2, 1, 0));
  const auto signs = load(Npy("|i1", "(1, 2, 2)", Bytes({0, 255, 1, 0})));
  ASSERT_TRUE(signs.ok()) << signs.status();
  EXPECT_EQ(signs->train->target_info().position_classes, 0) << "-1 is no class";
  EXPECT_THAT(std::string(load(Npy("|u1", "(1, 2, 2)", Bytes({0, 2, 1, 0})), {.augmentation = {.flip = true}})
                              .status()
                              .message()),
              HasSubstr("targets have the shape [2,2] and would not be augmented with the images"));
}

}  // namespace
}  // namespace cairn::data
