#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "data/criteo/criteo_files.h"
#include "data/criteo/criteo_line.h"
#include "data/criteo/synthetic_ctr.h"
#include "data/dataset.h"
#include "data/hashed_id.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/examples.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// A line with the values of label, I1, I2 and C1, C2; I13 is 5 and C26 is the largest category.
std::string Line(const std::string& label, const std::string& i1, const std::string& i2,
                 const std::string& c1, const std::string& c2) {
  std::vector<std::string> fields(1 + kCriteoNumbers + kCriteoCategories);
  fields[0] = label;
  fields[1] = i1;
  fields[2] = i2;
  fields[13] = "5";
  fields[14] = c1;
  fields[15] = c2;
  fields[39] = "ffffffff";
  return absl::StrJoin(fields, "\t");
}

std::string GoodLine() {
  return Line("1", "3", "-2", "68fd1e64", "80e26c9b");
}

std::string FaultOf(absl::string_view line) {
  CriteoLine parsed;
  return std::string(ParseCriteoLine(line, /*labelled=*/true, parsed).message());
}

// A model with the inputs `dense` [13] and `ids` [26].
DataOptions OptionsFor(const std::string& path) {
  return {.path = path,
          .input_names = {"dense", "ids"},
          .input_shapes = {{13}, {26}},
          .input_types = {DType::kFloat32, DType::kInt64},
          .table_rows = {0, 1000}};
}

struct Inputs {
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<int64_t>> ids;
  float label = 0;
};

Inputs ReadInputs(const Dataset& dataset, int64_t index) {
  InputRows rows(dataset.input_specs(), 1);
  Inputs inputs;
  dataset.Read(index, rows.Row(0), absl::MakeSpan(&inputs.label, 1));
  for (const TensorView& input : rows.First(1)) {
    if (IsInteger(input.dtype)) {
      auto& ids = inputs.ids.emplace_back();
      for (int64_t i = 0; i < input.shape.num_elements(); ++i) ids.push_back(input.Integer(i));
    } else {
      const auto values = input.floats();
      inputs.floats.emplace_back(values.begin(), values.end());
    }
  }
  return inputs;
}

TEST(CriteoLine, HasALabelNumbersAndCategories) {
  CriteoLine line;
  ASSERT_TRUE(
      ParseCriteoLine(Line("1", "9223372036854775807", "-3", "68fd1e64", "80E26C9B"), true, line).ok());
  EXPECT_EQ(line.label, 1);
  EXPECT_EQ(line.numbers[0], 9223372036854775807);
  EXPECT_EQ(line.numbers[1], -3);
  EXPECT_EQ(line.numbers[2], 0);
  EXPECT_EQ(CriteoId(line.categories[0]), int64_t{0x68fd1e64} + 1);
  EXPECT_EQ(CriteoText(line.categories[1]), "80e26c9b");
  EXPECT_EQ(CriteoId(line.categories[2]), 0);
  EXPECT_EQ(CriteoText(line.categories[2]), "");
  EXPECT_EQ(CriteoId(line.categories[25]), int64_t{1} << 32);
}

TEST(CriteoLine, NumbersHaveAnyLength) {
  for (const char* number :
       {"1", "-1", "123456", "1234567", "12345678", "123456789", "-12345678", "1234567890123456"}) {
    CriteoLine line;
    ASSERT_TRUE(ParseCriteoLine(Line("1", number, "-2", "68fd1e64", ""), true, line).ok()) << number;
    EXPECT_EQ(line.numbers[0], std::stoll(number));
    EXPECT_EQ(line.numbers[1], -2);
    EXPECT_EQ(CriteoId(line.categories[0]), int64_t{0x68fd1e64} + 1);
  }
}

TEST(CriteoLine, AFaultNamesItsField) {
  EXPECT_EQ(FaultOf(Line("2", "", "", "", "")), "the label holds '2', which is not 0 or 1");
  EXPECT_EQ(FaultOf(Line("", "", "", "", "")), "the label holds '', which is not 0 or 1");
  EXPECT_EQ(FaultOf(Line("1", "1.5", "", "", "")), "I1 holds '1.5', which is not a whole number (int64)");
  for (const char* number : {"-", "+1", " 1", "9223372036854775808", "12345678901234567890123"}) {
    EXPECT_THAT(FaultOf(Line("1", "", number, "", "")), HasSubstr("I2 holds ")) << number;
  }
  for (const char* category : {"68fd1e6", "68fd1e644", "68fd1e6g", "68fd 1e6"}) {
    EXPECT_THAT(FaultOf(Line("0", "", "", "", category)), HasSubstr("C2 holds ")) << category;
  }
}

TEST(CriteoLine, AnotherNumberOfFieldsIsRefused) {
  const std::string line = GoodLine();
  EXPECT_THAT(FaultOf(line.substr(2)), HasSubstr("has 39 fields between tabs, but a line of Criteo has 40"));
  EXPECT_THAT(FaultOf(line.substr(2)), EndsWith("is its label missing?"));
  EXPECT_THAT(FaultOf(line + "\t"), HasSubstr("has 41 fields"));
  EXPECT_THAT(FaultOf("a text"), HasSubstr("has 1 field between tabs"));
  CriteoLine parsed;
  EXPECT_TRUE(ParseCriteoLine(line.substr(2), /*labelled=*/false, parsed).ok());
  EXPECT_EQ(parsed.numbers[0], 3);
  EXPECT_THAT(std::string(ParseCriteoLine(line, /*labelled=*/false, parsed).message()),
              HasSubstr("has 40 fields"));
}

TEST(CriteoNumber, IsTheLogarithmOfOneMore) {
  EXPECT_EQ(CriteoNumber(-3), 0);
  EXPECT_EQ(CriteoNumber(0), 0);
  EXPECT_FLOAT_EQ(CriteoNumber(1), 0.69314718f);
  EXPECT_FLOAT_EQ(CriteoNumber(1023), 6.9314718f);
  EXPECT_FLOAT_EQ(CriteoNumber(1024), std::log(1025.0f));
}

// Computed by an XXH64 of its own in Python: xxh64(digits, seed=xxh64(b"C1")) % 1000.
TEST(HashedId, IsTheSameEverywhere) {
  EXPECT_EQ(HashedId("68fd1e64", SaltOf("C1"), 1000), 487);
  EXPECT_EQ(HashedId("68fd1e64", SaltOf("C2"), 1000), 355);
  EXPECT_EQ(HashedId("", SaltOf("C1"), 1000), 694);
  EXPECT_EQ(HashedId("", SaltOf("C26"), 1000), 648);
}

TEST(Criteo, ReadsLinesOfADirectory) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.txt", GoodLine() + "\r\n\n" + Line("0", "", "7", "", "00000000"));
  WriteGzip(dir / "validation.txt.gz", GoodLine() + "\n");
  const auto data = LoadTrainingData(OptionsFor(dir.path()));
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->train->size(), 2);
  EXPECT_EQ(data->train->num_classes(), 2);
  ASSERT_NE(data->validation, nullptr);
  EXPECT_EQ(data->validation->size(), 1);

  const Inputs first = ReadInputs(*data->train, 0), second = ReadInputs(*data->train, 1);
  EXPECT_EQ(first.label, 1);
  EXPECT_EQ(second.label, 0);
  ASSERT_EQ(first.floats[0].size(), 13u);
  EXPECT_FLOAT_EQ(first.floats[0][0], std::log(4.0f));
  EXPECT_EQ(first.floats[0][1], 0);
  EXPECT_FLOAT_EQ(first.floats[0][12], std::log(6.0f));
  EXPECT_FLOAT_EQ(second.floats[0][1], std::log(8.0f));
  ASSERT_EQ(first.ids[0].size(), 26u);
  EXPECT_EQ(first.ids[0][0], int64_t{0x68fd1e64} + 1);
  EXPECT_EQ(first.ids[0][2], 0);
  EXPECT_EQ(second.ids[0][0], 0);
  EXPECT_EQ(second.ids[0][1], 1);
  EXPECT_TRUE(data->train->status().ok());
}

TEST(Criteo, HashedIdsFitTheTableAndDifferBetweenFields) {
  const TemporaryDirectory dir;
  WriteText(dir / "day_0", Line("1", "", "", "68FD1E64", "68fd1e64"));
  DataOptions options = OptionsFor(dir.path());
  options.hash_ids = true;
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  const Inputs inputs = ReadInputs(*data->train, 0);
  EXPECT_EQ(inputs.ids[0][0], 487);
  EXPECT_EQ(inputs.ids[0][1], 355);
  EXPECT_EQ(inputs.ids[0][25], HashedId("ffffffff", SaltOf("C26"), 1000));
  EXPECT_TRUE(data->columns->hashed_ids);
}

TEST(Criteo, AnInputNamedAfterAFieldTakesIt) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.txt", GoodLine());
  const auto data = LoadTrainingData({.path = dir / "a.txt",
                                      .input_names = {"C2", "I1", "C1"},
                                      .input_shapes = {{1}, {1}, {1}},
                                      .input_types = {DType::kInt64, DType::kFloat32, DType::kInt64}});
  ASSERT_TRUE(data.ok()) << data.status();
  const Inputs inputs = ReadInputs(*data->train, 0);
  EXPECT_THAT(inputs.ids,
              ElementsAre(ElementsAre(int64_t{0x80e26c9b} + 1), ElementsAre(int64_t{0x68fd1e64} + 1)));
  EXPECT_FLOAT_EQ(inputs.floats[0][0], std::log(4.0f));
  EXPECT_THAT(data->columns->inputs, ElementsAre(15, 1, 14));
}

TEST(Criteo, FeatureColumnsNameTheFieldsOfTheInputs) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.txt", GoodLine());
  DataOptions options = {.path = dir / "a.txt",
                         .input_names = {"ids", "x"},
                         .input_shapes = {{2}, {1}},
                         .input_types = {DType::kInt64, DType::kFloat32},
                         .feature_columns = {"C26", "C1", "I13"}};
  auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadInputs(*data->train, 0).ids[0], ElementsAre(int64_t{1} << 32, int64_t{0x68fd1e64} + 1));
  options.feature_columns = {"C26", "I1", "I13"};
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("input 'ids' of the model takes integers, but I1 is a number"));
  options.feature_columns = {"C26", "C27", "I13"};
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()), HasSubstr("'C27' is no field"));
  options.feature_columns = {"C26", "C1", "I13", "I1"};
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("names 4 fields, but the model takes 3"));
}

TEST(Criteo, AnInputThatDoesNotSuitIsRefused) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.txt", GoodLine());
  DataOptions options = OptionsFor(dir / "a.txt");
  options.input_shapes[0] = {12};
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("a.txt: input 'dense' of the model takes 12 values, but there are 13 fields for it"));
  options = OptionsFor(dir / "a.txt");
  options.hash_ids = true;
  options.table_rows = {0, 0};
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("--hash_ids: no Embedding looks up the values of input 'ids'"));
}

TEST(Criteo, ALineWithoutLabelIsRefusedByFileLineAndCount) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.txt", GoodLine() + "\n\n" + GoodLine().substr(2) + "\n" + GoodLine() + "\n");
  DataOptions options = OptionsFor(dir.path());
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr(dir / "train.txt: line 3: has 39 fields between tabs, but a line of Criteo has 40"));
  options.max_bad_rows = 1;
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 2);
  EXPECT_THAT(data->remarks, ElementsAre(HasSubstr("1 bad row is skipped")));
}

TEST(Criteo, PredictionNeedsNoLabels) {
  const TemporaryDirectory dir;
  WriteText(dir / "test.txt", GoodLine().substr(2) + "\n");
  DataOptions options = OptionsFor(dir / "test.txt");
  options.labels_optional = true;
  const auto examples = LoadExamples(options);
  ASSERT_TRUE(examples.ok()) << examples.status();
  ASSERT_TRUE(examples->has_value());
  EXPECT_EQ((*examples)->inputs->size(), 1);
  EXPECT_FALSE((*examples)->targets.has_value());
}

TEST(Criteo, TheLastOfSeveralDaysIsTheValidationSet) {
  const TemporaryDirectory dir;
  for (const char* day : {"day_2", "day_9", "day_10.gz"}) WriteText(dir / day, GoodLine());
  const auto files = FindCriteoFiles(dir.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->train, ElementsAre(dir / "day_2", dir / "day_9"));
  EXPECT_THAT(files->validation, ElementsAre(dir / "day_10.gz"));
  EXPECT_THAT(files->remarks, ElementsAre(HasSubstr("numbers 3, 4, 5, 6, 7 and 1 more are missing")));
  WriteText(dir / "day_9.gz", GoodLine());
  EXPECT_THAT(std::string(FindCriteoFiles(dir.path()).status().message()),
              HasSubstr("day_9 and day_9.gz are the same piece: remove one of them"));
}

TEST(Criteo, AnIdThatItsTypeCannotHoldIsRefusedWithItsLine) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.txt", Line("0", "", "", "", "") + "\n" + GoodLine());
  DataOptions options = OptionsFor(dir / "a.txt");
  options.input_types[1] = DType::kInt32;
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  ReadInputs(*data->train, 1);
  EXPECT_THAT(std::string(data->train->status().message()),
              HasSubstr(dir / "a.txt: line 2: value 1 is 2162322588"));
}

TEST(ExactAuc, CountsPairs) {
  EXPECT_EQ(ExactAuc({.1f, .2f, .3f, .4f}, {false, false, true, true}), 1);
  EXPECT_EQ(ExactAuc({.1f, .4f, .3f, .2f}, {false, false, true, true}), 0.5);
  EXPECT_EQ(ExactAuc({.5f, .5f, .9f}, {false, true, true}), 0.75);
  EXPECT_EQ(ExactAuc({.5f}, {true}), 0.5);
}

TEST(SyntheticCtr, WritesTheSameReadableFilesForASeed) {
  const TemporaryDirectory dir;
  const SyntheticCtrOptions options = {.train_rows = 300, .test_rows = 4000, .seed = 7, .scale = 0.0001};
  const auto teacher = WriteSyntheticCtr(dir / "a", options);
  ASSERT_TRUE(teacher.ok()) << teacher.status();
  EXPECT_GT(teacher->auc, 0.7);
  EXPECT_LT(teacher->auc, 0.9);
  EXPECT_GT(teacher->click_rate, 0.1);
  EXPECT_LT(teacher->click_rate, 0.5);
  const auto data = LoadTrainingData(OptionsFor(dir / "a"));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 300);
  EXPECT_EQ(data->validation->size(), 4000);
  EXPECT_THAT(ReadText(dir / "a/teacher.json"), HasSubstr(absl::StrCat("\"seed\": 7")));

  ASSERT_TRUE(WriteSyntheticCtr(dir / "b", options).ok());
  EXPECT_EQ(ReadText(dir / "a/train.txt"), ReadText(dir / "b/train.txt"));
  SyntheticCtrOptions other = options;
  other.seed = 8;
  ASSERT_TRUE(WriteSyntheticCtr(dir / "c", other).ok());
  EXPECT_NE(ReadText(dir / "a/train.txt"), ReadText(dir / "c/train.txt"));
}

TEST(SyntheticCtr, ALineDoesNotDependOnTheNumberOfLines) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteSyntheticCtr(dir / "a", {.train_rows = 3, .test_rows = 1}).ok());
  ASSERT_TRUE(WriteSyntheticCtr(dir / "b", {.train_rows = 5, .test_rows = 1}).ok());
  const std::string few = ReadText(dir / "a/train.txt");
  EXPECT_EQ(ReadText(dir / "b/train.txt").substr(0, few.size()), few);
}

TEST(SyntheticCtr, RefusesImpossibleOptions) {
  const TemporaryDirectory dir;
  EXPECT_THAT(std::string(WriteSyntheticCtr(dir.path(), {.train_rows = 0}).status().message()),
              HasSubstr("cannot write 0 rows"));
  EXPECT_THAT(std::string(WriteSyntheticCtr(dir.path(), {.scale = 0}).status().message()),
              HasSubstr("the scale is 0"));
}

}  // namespace
}  // namespace cairn::data
