#include "worker/data/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/data/data_files.h"
#include "tests/unit/data/examples.h"
#include "worker/data/dataset.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Record = std::vector<std::string>;

std::vector<Record> RecordsOf(absl::string_view text) {
  CsvReader reader(text);
  std::vector<Record> records;
  std::vector<absl::string_view> fields;
  for (;;) {
    const auto more = reader.Next(fields);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return records;
    records.emplace_back(fields.begin(), fields.end());
  }
}

TEST(CsvReader, ReadsFieldsAndLines) {
  const auto two = ElementsAre(Record{"a", "b c"}, Record{"1", ""});
  EXPECT_THAT(RecordsOf("a,b c\n1,\n"), two);
  EXPECT_THAT(RecordsOf("a,b c\r\n1,"), two);
  EXPECT_THAT(RecordsOf("\xEF\xBB\xBF\n a ,\tb c\r\n\r\n\n1, \n\n"), two);
  EXPECT_THAT(RecordsOf(""), ElementsAre());
}

TEST(CsvReader, QuotedFieldsMayHoldAnything) {
  EXPECT_THAT(RecordsOf("\"a,b\",\"say \"\"no\"\"\",\" x \"\n\"two\nlines\",\"\",\"\"\"\"\n"),
              ElementsAre(Record{"a,b", "say \"no\"", " x "}, Record{"two\nlines", "", "\""}));
  EXPECT_THAT(RecordsOf("5\" wide,x\"y\n"), ElementsAre(Record{"5\" wide", "x\"y"}));
}

TEST(CsvReader, CountsTheLinesInsideQuotes) {
  CsvReader reader("a\n\"b\n\n\"\n\nc\n");
  std::vector<absl::string_view> fields;
  std::vector<int64_t> lines;
  while (*reader.Next(fields)) lines.push_back(reader.line());
  EXPECT_THAT(lines, ElementsAre(1, 2, 6));
}

TEST(CsvReader, GoesOnBehindABrokenRecordButNotBehindAnOpenQuote) {
  CsvReader reader("\"a\" b,c\nd,e\n\"f\n");
  std::vector<absl::string_view> fields;
  EXPECT_THAT(std::string(reader.Next(fields).status().message()),
              HasSubstr("text follows the closing quote of field 1"));
  ASSERT_TRUE(*reader.Next(fields));
  EXPECT_THAT(fields, ElementsAre("d", "e"));
  EXPECT_EQ(reader.Next(fields).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(reader.line(), 3);
}

absl::StatusOr<TrainingData> Load(const std::string& text, DataOptions options = {}) {
  const TemporaryDirectory dir;
  options.path = dir / "a.csv";
  WriteText(options.path, text);
  return LoadTrainingData(options);
}

std::string RefusalOf(const std::string& text, const DataOptions& options = {}) {
  const auto status = Load(text, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(LoadTrainingDataFromCsv, TheLabelIsTheColumnOfThatNameOrTheLast) {
  const auto named = Load("a,Label,b\n1,2,3\n4,0,-6.5\n");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->train->size(), 2);
  EXPECT_EQ(named->train->num_classes(), 3);
  EXPECT_EQ(named->train->example_shape(), Shape({2}));
  EXPECT_THAT(ReadExample(*named->train, 1).inputs, ElementsAre(4, -6.5f));
  EXPECT_THAT(ReadExample(*named->train, 0).target, ElementsAre(2));
  const auto last = Load("a,b,c\n1,2,3\n");
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_THAT(ReadExample(*last->train, 0).inputs, ElementsAre(1, 2));
  EXPECT_THAT(ReadExample(*last->train, 0).target, ElementsAre(3));
}

TEST(LoadTrainingDataFromCsv, WithoutAHeaderTheFirstLineIsAnExample) {
  for (const char* text : {"1,2,0\n4,5,1\n", "1,NA,0\n4,5,1\n", "1,2,cat\n4,5,dog\n"}) {
    const auto data = Load(text, {.missing_value = 2.0f});
    ASSERT_TRUE(data.ok()) << data.status();
    ASSERT_EQ(data->train->size(), 2);
    EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(1, 2));
    EXPECT_THAT(ReadExample(*data->train, 1).target, ElementsAre(1));
  }
}

// As MNIST is often found: the pixels' columns are called by their numbers.
TEST(LoadTrainingDataFromCsv, AHeaderMayHoldNumbersBesideTheLabelsName) {
  const auto data = Load("label,0,1\n7,10,20\n");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 1);
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(10, 20));
}

TEST(LoadTrainingDataFromCsv, ColumnsAreChosenByNameOrIndex) {
  const std::string with_header = "id,price,x,y\n900,1,2,3\n", without = "900,1,2,3\n";
  for (const auto& [text, label, features] :
       {std::tuple(with_header, "price", std::vector<std::string>{"y", "x"}),
        std::tuple(with_header, "1", std::vector<std::string>{"3", "2"}),
        std::tuple(without, "1", std::vector<std::string>{"3", "2"})}) {
    const auto data = Load(text, {.label_column = label, .feature_columns = features});
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(3, 2));
    EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(1));
  }
  EXPECT_THAT(RefusalOf(with_header, {.label_column = "cost"}),
              HasSubstr("a.csv: has no column 'cost'; it has: id, price, x, y"));
  EXPECT_THAT(RefusalOf(without, {.label_column = "4"}), HasSubstr("has no column '4'; it has: 0, 1, 2, 3"));
}

TEST(LoadTrainingDataFromCsv, WordsAreClassesInTheirSortedOrder) {
  const auto data = Load("x,species\n1,\"setosa\"\n2,virginica\n3,setosa\n4,alba\n");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->num_classes(), 3);
  std::vector<float> labels;
  for (int i = 0; i < 4; ++i) labels.push_back(ReadExample(*data->train, i).target[0]);
  EXPECT_THAT(labels, ElementsAre(1, 2, 1, 0));
}

TEST(LoadTrainingDataFromCsv, OtherNumbersAreTargetsToRegressTo) {
  for (const char* text : {"x,y\n1,3\n2,0.5\n", "x,y\n1,3.0\n2,0.5\n", "x,y\n1,-3\n2,4\n"}) {
    const auto data = Load(text);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->train->num_classes(), 0) << text;
    EXPECT_EQ(data->train->num_targets(), 1);
  }
}

TEST(LoadTrainingDataFromCsv, MissingValuesBecomeTheNumberGivenOrAreRefused) {
  const std::string text = "a,b,y\n1,,0\nNaN,2,1\nNA,null,1\n";
  const auto data = Load(text, {.missing_value = -1.0f});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(1, -1));
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(-1, 2));
  EXPECT_THAT(ReadExample(*data->train, 2).inputs, ElementsAre(-1, -1));
  EXPECT_THAT(RefusalOf(text), HasSubstr("a.csv: line 2: column 'b' is empty and no number stands for that"));
}

TEST(LoadTrainingDataFromCsv, BadRowsAreLeftOutUpToTheLimit) {
  const std::string text = "a,y\n1,0\nred,1\n2\n3,1\n";
  EXPECT_THAT(RefusalOf(text), HasSubstr("a.csv: line 3: column 'a' holds 'red', no number"));
  EXPECT_THAT(
      RefusalOf(text, {.max_bad_rows = 1}),
      HasSubstr("a.csv: line 4: has 1 fields, the first line 2; it is bad row number 2, and 1 may be"));
  const auto data = Load(text, {.max_bad_rows = 2});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->remarks, ElementsAre(HasSubstr("a.csv: 2 bad rows are left out, the first: ")));
  ASSERT_EQ(data->train->size(), 2);
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(3));
}

TEST(LoadTrainingDataFromCsv, TheFirstLineIsNeverLeftOut) {
  EXPECT_THAT(RefusalOf("\"a\" b,y\n1,0\n", {.max_bad_rows = 5}),
              HasSubstr("a.csv: line 1: text follows the closing quote of field 1"));
}

TEST(LoadTrainingDataFromCsv, SeveralFilesAreOneSetAndValidationHasTheTrainingSetsClasses) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-0.csv", "a,y\n1,dog\n");
  WriteGzip(dir / "train-1.csv.gz", "a,y\n2,cat\n3,dog\n");
  WriteText(dir / "validation.csv", "a,y\n4,dog\n");
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->train->size(), 3);
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(2));
  EXPECT_THAT(ReadExample(*data->train, 1).target, ElementsAre(0));
  EXPECT_THAT(ReadExample(*data->validation, 0).target, ElementsAre(1));
  WriteText(dir / "validation.csv", "a,y\n4,cow\n");
  EXPECT_THAT(std::string(LoadTrainingData({.path = dir.path()}).status().message()),
              HasSubstr("validation.csv: line 2: the label 'cow' is none of the training set's"));
}

// Whole numbers in a small validation set do not make classes of what training regresses to.
TEST(LoadTrainingDataFromCsv, ValidationLabelsAreReadAsThoseOfTheTrainingSet) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.csv", "a,y\n1,0.5\n");
  WriteText(dir / "test.csv", "a,y\n4,2\n");
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->validation->num_classes(), 0);
  EXPECT_THAT(ReadExample(*data->validation, 0).target, ElementsAre(2));
}

}  // namespace
}  // namespace cairn::data
