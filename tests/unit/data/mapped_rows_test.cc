// Values that become ids by the maps of a model's inputs, in every format.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/ids/id_map.h"
#include "data/dataset.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/examples.h"
#include "tests/unit/data/npz_files.h"
#include "tests/unit/data/tf_record_files.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "Paris" 1, "New York" 2, others 0; or no id for others.
std::shared_ptr<const IdMap> Cities(int64_t others = 1) {
  return MakeTextVocabulary(
      {.layer = "layer 'cities' (StringLookup)", .first_token = others, .others = {.buckets = others}},
      {"Paris", "New York"}, std::nullopt);
}

// 70 is 1, 80 is 2; other values have no id.
std::shared_ptr<const IdMap> Numbers() {
  return MakeIntegerVocabulary(
      {.layer = "layer 'numbers' (IntegerLookup)", .first_token = 1, .others = {.buckets = 0}}, {70, 80},
      std::nullopt);
}

// Options for one input `x` of `values` values.
DataOptions OneInput(std::string path, std::shared_ptr<const IdMap> map, bool text, int64_t values = 1) {
  return {.path = std::move(path),
          .input_names = {"x"},
          .input_shapes = {{values}},
          .input_types = {DType::kInt64},
          .id_maps = {std::move(map)},
          .text_inputs = {text}};
}

std::string FaultOf(const DataOptions& options) {
  return std::string(LoadTrainingData(options).status().message());
}

TEST(MappedRows, StringsOfCsvHaveIds) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.csv", "x,label\nParis,0\nNew York,1\nparis,1\n,0\nNA,0\n\"Paris\",1\n");
  const auto data = LoadTrainingData(OneInput(dir / "a.csv", Cities(), true));
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < data->train->size(); ++i) ids.push_back(ReadIds(*data->train, i)[0]);
  EXPECT_THAT(ids, ElementsAre(1, 2, 0, 0, 0, 1));
  const auto examples = LoadExamples(OneInput(dir / "a.csv", Cities(), true));
  ASSERT_TRUE(examples.ok() && examples->has_value()) << examples.status();
}

TEST(MappedRows, AFieldOfCsvHasSeveralStrings) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.csv", "x,y,label\nParis Paris,1,0\nParis|Rome,2,1\n");
  DataOptions options = {.path = dir / "a.csv",
                         .input_names = {"x", "y"},
                         .input_shapes = {{2}, {1}},
                         .input_types = {DType::kInt64, DType::kFloat32},
                         .id_maps = {Cities(), nullptr},
                         .text_inputs = {true, false}};
  auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadIds(*data->train, 1), ElementsAre(1, 0));

  WriteText(dir / "a.csv", "x,y,label\nParis|Paris|New York,1,0\n,2,1\n");
  options.ragged_inputs = {true, false};
  options.input_shapes = {{1}, {1}};
  data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  InputRows rows(data->train->input_specs(), 2);
  float target = 0;
  for (int64_t row : {0, 1}) data->train->Read(row, rows.Row(row), {&target, 1});
  EXPECT_THAT(rows.First(2)[0].row_splits, ElementsAre(0, 4, 4));  // a blank separates, too
}

TEST(MappedRows, AStringWithoutAnIdIsABadRowOfCsv) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.csv", "x,label\nParis,0\nRome,1\n");
  DataOptions options = OneInput(dir / "a.csv", Cities(0), true);
  EXPECT_THAT(FaultOf(options),
              HasSubstr("a.csv: line 3: column 'x' cannot be used: input 'x': layer 'cities' "
                        "(StringLookup) has no id for 'Rome'"));
  options.max_bad_rows = 1;
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 1);
  options.input_shapes = {{2}};
  EXPECT_THAT(FaultOf(options), HasSubstr("has 1 columns of inputs, and the inputs of the model take 2"));
}

TEST(MappedRows, StringsOfTfExamplesHaveIds) {
  const TemporaryDirectory dir;
  const auto record = [](const std::vector<std::string>& words) {
    std::string list;
    for (const std::string& word : words) list += Nested(1, word);
    return TfRecord(TfExample({{"x", Nested(1, list)}, {"label", IntegersFeature({1})}}));
  };
  WriteText(dir / "a.tfrecord", record({"Paris", "New York"}) + record({"", "Paris"}));
  DataOptions options = OneInput(dir / "a.tfrecord", Cities(), true, 2);
  options.feature_columns = {"x"};
  auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadIds(*data->train, 0), ElementsAre(1, 2));
  EXPECT_THAT(ReadIds(*data->train, 1), ElementsAre(0, 1));
  options.id_maps = {Cities(0)};
  data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  ReadIds(*data->train, 1);
  EXPECT_THAT(
      data->train->status().message(),
      HasSubstr("a.tfrecord: record 1: 'x': input 'x': layer 'cities' (StringLookup) has no id for ''"));

  WriteText(dir / "a.tfrecord", record({"Paris", "New York"}) + record({"Paris"}));
  EXPECT_THAT(FaultOf(options), HasSubstr("'x': is a bytes_list of 1 values, not a bytes_list of 2 values"));
  WriteText(dir / "a.tfrecord",
            TfRecord(TfExample({{"x", IntegersFeature({1, 2})}, {"label", IntegersFeature({1})}})));
  EXPECT_THAT(FaultOf(options), HasSubstr("'x': is a int64_list; input 'x' takes strings, a bytes_list"));

  WriteText(dir / "a.tfrecord", record({"Paris", "New York", "Paris"}) + record({}) + record({"New York"}));
  options.id_maps = {Cities()};
  options.ragged_inputs = {true};
  options.input_shapes = {{1}};
  data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  InputRows rows(data->train->input_specs(), 3);
  float target = 0;
  for (int64_t row : {0, 1, 2}) data->train->Read(row, rows.Row(row), {&target, 1});
  const TensorView ids = rows.First(3)[0];
  EXPECT_THAT(ids.row_splits, ElementsAre(0, 3, 3, 4));
  EXPECT_EQ(ids.Integer(3), 2);
}

TEST(MappedRows, IntegersOfArraysHaveIds) {
  const TemporaryDirectory dir;
  const auto npz = [&](const std::string& x) {
    WriteNpz(dir / "a.npz",
             {{"x_train.npy", Npy("|u1", "(2, 2)", x)}, {"y_train.npy", Npy("|u1", "(2,)", Bytes({0, 1}))}});
  };
  npz(Bytes({70, 80, 80, 80}));
  DataOptions options = OneInput(dir / "a.npz", Numbers(), false, 2);
  auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadIds(*data->train, 0), ElementsAre(1, 2));
  npz(Bytes({70, 80, 75, 80}));
  data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  ReadIds(*data->train, 1);
  EXPECT_THAT(data->train->status().message(),
              HasSubstr("x_train: example 1: input 'x': layer 'numbers' (IntegerLookup) has no id for 75"));
  options = OneInput(dir / "a.npz", Cities(), true, 2);
  EXPECT_THAT(FaultOf(options), HasSubstr("input 'x' of the model takes strings, which only CSV, JSON lines, "
                                          "TFRecord files and folders of texts have"));
}

TEST(MappedRows, FloatsHaveTheNumbersOfTheirIntervals) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.csv", "x,label\n-1.5,0\n0.5,1\n7,0\n");
  const auto data = LoadTrainingData(
      OneInput(dir / "a.csv", MakeIntervals("layer 'ages' (Discretization)", {0, 0.5f}), false));
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < data->train->size(); ++i) ids.push_back(ReadIds(*data->train, i)[0]);
  EXPECT_THAT(ids, ElementsAre(0, 2, 2));
}

TEST(MappedRows, HashIdsLeavesMappedInputsAlone) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.csv", "x,y,label\nParis,some,0\nParis,other,1\n");
  const DataOptions options = {.path = dir / "a.csv",
                               .input_names = {"x", "y"},
                               .input_shapes = {{1}, {1}},
                               .input_types = {DType::kInt64, DType::kInt64},
                               .table_rows = {0, 1000},
                               .id_maps = {Cities(), nullptr},
                               .text_inputs = {true, false},
                               .hash_ids = true};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadIds(*data->train, 1), ElementsAre(1));
}

}  // namespace
}  // namespace cairn::data
