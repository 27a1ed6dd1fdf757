#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/dataset.h"
#include "data/hashed_id.h"
#include "data/libsvm/libsvm_line.h"
#include "tests/unit/data/data_files.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string FaultOf(absl::string_view line) {
  LibsvmLine parsed;
  return std::string(ParseLibsvmLine(line, parsed).message());
}

TEST(LibsvmLine, HasALabelIndicesAndValues) {
  LibsvmLine line;
  ASSERT_TRUE(ParseLibsvmLine("-1 qid:7\t3:0.5  9223372036854775807:-2e-3 0:+1", line).ok());
  EXPECT_EQ(line.label, -1);
  EXPECT_FALSE(line.has_fields);
  ASSERT_EQ(line.entries.size(), 3u);
  EXPECT_EQ(line.entries[0].index, 3);
  EXPECT_EQ(line.entries[1].index, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(line.entries[1].value, -2e-3f);
  EXPECT_EQ(line.entries[2].value, 1);
  ASSERT_TRUE(ParseLibsvmLine("0.25", line).ok());
  EXPECT_TRUE(line.has_label && line.entries.empty());
  ASSERT_TRUE(ParseLibsvmLine("2:1 5:1e-60", line).ok());
  EXPECT_FALSE(line.has_label);
  EXPECT_EQ(line.entries[1].value, 0);
}

TEST(LibsvmLine, HasFieldsInLibffm) {
  LibsvmLine line;
  ASSERT_TRUE(ParseLibsvmLine("1 0:12:1 3:7:0.5", line).ok());
  EXPECT_TRUE(line.has_fields);
  EXPECT_EQ(line.entries[1].field, 3);
  EXPECT_EQ(line.entries[1].index, 7);
  EXPECT_EQ(line.entries[1].value, 0.5f);
}

TEST(LibsvmLine, AFaultNamesItsEntry) {
  EXPECT_EQ(FaultOf("x 1:2"), "the label is 'x', which is not a number");
  EXPECT_EQ(FaultOf("1,3 1:2"), "the label is '1,3', which is not a number");
  EXPECT_EQ(FaultOf("1 7"), "'7' is not index:value");
  EXPECT_EQ(FaultOf("1 -7:1"), "'-7:1': '-7' is not a whole number from 0 on (int64)");
  EXPECT_EQ(FaultOf("1 7:"), "'7:': '' is not a number (float32)");
  EXPECT_EQ(FaultOf("1 :1"), "':1': '' is not a whole number from 0 on (int64)");
  for (const char* entry :
       {"7:nan", "7:1e60", "7:1x", "7: 1", "9223372036854775808:1", "1.5:1", "0x1:1", "1:2:3:4"}) {
    EXPECT_THAT(FaultOf(absl::StrCat("1 ", entry)), HasSubstr("is not a")) << entry;
  }
  EXPECT_THAT(FaultOf("1 qid:x 3:1"), HasSubstr("'qid:x': 'x' is not a whole number"));
  EXPECT_THAT(FaultOf("1 3:1 0:3:1"),
              HasSubstr("'0:3:1' is field:index:value, but the line began with index:value"));
}

// Ragged `ids` with the weights `values`.
DataOptions BagOptions(const std::string& path) {
  return {.path = path,
          .input_names = {"ids", "values"},
          .input_shapes = {{1}, {1}},
          .input_types = {DType::kInt64, DType::kFloat32},
          .ragged_inputs = {true, true},
          .table_rows = {10, 0},
          .weights_of = {-1, 0}};
}

// All examples of a set: their inputs, and targets.
struct All {
  explicit All(const Dataset& dataset) : rows(dataset.input_specs(), dataset.size()) {
    targets.resize(static_cast<size_t>(dataset.size()));
    for (int64_t i = 0; i < dataset.size(); ++i)
      dataset.Read(i, rows.Row(i), {&targets[static_cast<size_t>(i)], 1});
    inputs = rows.First(dataset.size());
  }
  std::vector<int64_t> Ids(size_t input) const {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < inputs[input].shape.num_elements(); ++i) ids.push_back(inputs[input].Integer(i));
    return ids;
  }
  InputRows rows;
  TensorViews inputs;
  std::vector<float> targets;
};

TEST(LoadTrainingDataFromLibsvm, IdsAndTheirValuesAreRagged) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-0.libsvm", "# a comment\n+1 3:0.5 7:2 # and another\n\n-1\n");
  WriteText(dir / "train-1.libsvm", "1 qid:4 9:-1\r\n");
  WriteText(dir / "test.libsvm", "-1 2:1 1:1 0:1\n");
  const auto data = LoadTrainingData(BagOptions(dir.path()));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->remarks, IsEmpty());
  const All all(*data->train);
  EXPECT_THAT(all.targets, ElementsAre(1, 0, 1)) << "-1 and 1 are the classes 0 and 1";
  EXPECT_EQ(data->train->num_classes(), 2);
  EXPECT_THAT(all.Ids(0), ElementsAre(3, 7, 9));
  EXPECT_THAT(all.inputs[0].row_splits, ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(all.inputs[1].floats(), ElementsAre(0.5f, 2, -1));
  EXPECT_THAT(all.inputs[1].row_splits, ElementsAre(0, 2, 2, 3));
  EXPECT_TRUE(data->train->status().ok());
  EXPECT_THAT(All(*data->validation).Ids(0), ElementsAre(2, 1, 0));
  EXPECT_EQ(data->columns->format, kLibsvmFormat);
}

TEST(LoadTrainingDataFromLibsvm, InputsOfAFixedSizeArePaddedByZeros) {
  const TemporaryDirectory dir;
  WriteText(dir / "a9a", "1 3:0.5 7:2\n0\n");
  WriteText(dir / "a9a.t", "1 3:1\n");
  DataOptions options = BagOptions(dir / "a9a");
  options.ragged_inputs = {};
  options.input_shapes = {{3}, {3}};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(All(*data->train).Ids(0), ElementsAre(3, 7, 0, 0, 0, 0));
  EXPECT_THAT(All(*data->train).inputs[1].floats(), ElementsAre(0.5f, 2, 0, 0, 0, 0));
  EXPECT_EQ(data->validation->size(), 1);
  options.input_shapes = {{1}, {1}};
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("a9a: line 1: has 2 entries, but input 'ids' of the model takes at most 1"));
}

TEST(LoadTrainingDataFromLibsvm, AModelWithoutIdsTakesAVector) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.svm", "1.5 2:0.5 4:2\n-1\n");
  DataOptions options = {
      .path = dir / "a.svm", .input_names = {"x"}, .input_shapes = {{4}}, .input_types = {DType::kFloat32}};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  const All all(*data->train);
  EXPECT_THAT(all.inputs[0].floats(), ElementsAre(0, 0.5f, 0, 2, 0, 0, 0, 0));
  EXPECT_THAT(all.targets, ElementsAre(1.5f, -1));
  for (const char* index : {"0", "5"}) {
    WriteText(dir / "a.svm", absl::StrCat("1 ", index, ":1\n"));
    EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
                HasSubstr(absl::StrCat("line 1: has the index ", index,
                                       ", but input 'x' of the model takes 1 to 4")));
  }
}

TEST(LoadTrainingDataFromLibffm, InputsTakeFieldsOrTheEntriesOfAField) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.txt", "1 0:12:1 3:7:0.5 3:8:2\n0 3:12:4\n");
  DataOptions options = {
      .path = dir.path(),
      .input_names = {"ids", "fields", "field_3", "field_3_weights", "field_0"},
      .input_shapes = {{1}, {1}, {1}, {1}, {1}},
      .input_types = {DType::kInt64, DType::kInt64, DType::kInt64, DType::kFloat32, DType::kInt32},
      .ragged_inputs = {true, true, true, true, false},
      .table_rows = {1000, 5, 1000, 0, 1000},
      .weights_of = {-1, -1, -1, 2, -1}};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  const All all(*data->train);
  EXPECT_THAT(all.Ids(0), ElementsAre(12, 7, 8, 12));
  EXPECT_THAT(all.Ids(1), ElementsAre(0, 3, 3, 3));
  EXPECT_THAT(all.Ids(2), ElementsAre(7, 8, 12));
  EXPECT_THAT(all.inputs[3].floats(), ElementsAre(0.5f, 2, 4));
  EXPECT_THAT(all.Ids(4), ElementsAre(12, 0));
  options.hash_ids = true;
  const auto hashed = LoadTrainingData(options);
  ASSERT_TRUE(hashed.ok()) << hashed.status();
  const std::vector<int64_t> ids = All(*hashed->train).Ids(0);
  EXPECT_EQ(ids[0], HashedId("12", SaltOf("0"), 1000));
  EXPECT_EQ(ids[3], HashedId("12", SaltOf("3"), 1000));
  EXPECT_TRUE(hashed->columns->hashed_ids);
  WriteText(dir / "train.txt", "1 12:1\n");
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("train.txt: line 1: is index:value, but input 'fields' of the model takes fields"));
}

TEST(LoadTrainingDataFromLibsvm, BadLinesAreSkippedAndCounted) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.libsvm", "1 3:0.5\n0 x:1\n3:1\n1 0:3:1\n0 4:1\n");
  DataOptions options = BagOptions(dir / "a.libsvm");
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("a.libsvm: line 2: 'x:1': 'x' is not a whole number"));
  options.max_bad_rows = 3;
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(All(*data->train).Ids(0), ElementsAre(3, 4));
  EXPECT_THAT(data->remarks, ElementsAre(HasSubstr("3 ")));
  options.max_bad_rows = 2;
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("a.libsvm: line 4: is field:index:value, unlike the lines before it"));
  WriteText(dir / "a.libsvm", "3:1\n");
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()), HasSubstr("holds no examples"));
  options.label_column = "y";
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("--label_column applies to"));
}

TEST(LoadTrainingDataFromLibsvm, AnIdThatItsTypeCannotHoldIsNamed) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.libsvm", "1 3:1\n0 4294967296:1\n");
  DataOptions options = BagOptions(dir / "a.libsvm");
  options.input_types[0] = DType::kInt32;
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  const All all(*data->train);
  EXPECT_THAT(
      std::string(data->train->status().message()),
      HasSubstr(
          "a.libsvm: line 2: value 0 is 4294967296, and the model's input takes whole numbers (int32)"));
}

TEST(LoadTrainingDataFromLibsvm, AFileThatChangesAfterLoadingIsAnError) {
  const TemporaryDirectory dir;
  const std::string path = dir / "a.libsvm";
  const auto fault_after = [&](const DataOptions& options, const char* before, const char* after) {
    WriteText(path, before);
    const auto data = LoadTrainingData(options);
    EXPECT_TRUE(data.ok()) << data.status();
    WriteInPlace(path, after);
    const All all(*data->train);
    for (const float value : all.inputs.back().floats()) EXPECT_EQ(value, 0);
    return std::string(data->train->status().message());
  };
  const DataOptions bag = BagOptions(path);
  EXPECT_THAT(fault_after(bag, "1 33333:1\n", "1 3:1 4:1\n"),
              HasSubstr("a.libsvm: line 1: has 2 entries for input 'ids', but the longest line had 1"));
  const DataOptions vector = {
      .path = path, .input_names = {"x"}, .input_shapes = {{4}}, .input_types = {DType::kFloat32}};
  EXPECT_THAT(fault_after(vector, "1 2:0.5\n", "1 9:0.5\n"), HasSubstr("line 1: has the index 9"));
  EXPECT_THAT(fault_after(vector, "1 2:0.5\n", "1 x:0.5\n"), HasSubstr("'x' is not a whole number"));
}

TEST(LoadTrainingDataFromLibsvm, TheTrainingSetDecidesWhetherLabelsAreSigns) {
  const TemporaryDirectory dir;
  const auto labels_of = [](const Dataset& dataset) { return All(dataset).targets; };
  DataOptions options = BagOptions(dir.path());
  WriteText(dir / "train.libsvm", "-1 3:1\n1 4:1\n");
  WriteText(dir / "test.libsvm", "-1 3:1\n0 4:1\n");
  auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(labels_of(*data->validation), ElementsAre(0, 0));
  options.label_threshold = -1;
  data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(labels_of(*data->train), ElementsAre(1, 1));
  options.label_threshold = 0;
  data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(labels_of(*data->train), ElementsAre(0, 1)) << "-1 is below the threshold";
  options.label_threshold = {};
  WriteText(dir / "train.libsvm", "0.5 3:1\n1 4:1\n");
  WriteText(dir / "test.libsvm", "-1 3:1\n1 4:1\n");
  data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(labels_of(*data->validation), ElementsAre(-1, 1));
}

TEST(LoadExamples, ReadsLibsvmWithAndWithoutLabels) {
  const TemporaryDirectory dir;
  DataOptions options = BagOptions(dir / "a.svm");
  options.labels_optional = true;
  for (const bool labelled : {true, false}) {
    WriteText(dir / "a.svm", labelled ? "-1 3:1\n1 4:1\n" : "3:1\n4:1\n");
    const auto examples = LoadExamples(options);
    ASSERT_TRUE(examples.ok() && examples->has_value()) << examples.status();
    EXPECT_EQ((*examples)->targets.has_value(), labelled);
    EXPECT_EQ((*examples)->inputs->size(), 2);
    if (labelled) EXPECT_THAT((*examples)->targets->values, ElementsAre(0, 1));
  }
}

}  // namespace
}  // namespace cairn::data
