#include "data/csv/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "data/class_names.h"
#include "data/csv/csv_schema.h"
#include "data/csv/decimal.h"
#include "data/dataset.h"
#include "data/hashed_id.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/examples.h"

namespace cairn::data {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

using Record = std::vector<std::string>;

std::vector<Record> RecordsOf(absl::string_view text, char separator = ',') {
  CsvReader reader(text, separator);
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

TEST(CsvReader, QuotedFieldsMayContainAnything) {
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

TEST(CsvReader, ContinuesAfterABrokenRecordButNotAfterAnOpenQuote) {
  CsvReader reader("\"a\" b,c\nd,e\n\"f\n");
  std::vector<absl::string_view> fields;
  EXPECT_THAT(std::string(reader.Next(fields).status().message()),
              HasSubstr("text follows the closing quote of field 1"));
  ASSERT_TRUE(*reader.Next(fields));
  EXPECT_THAT(fields, ElementsAre("d", "e"));
  EXPECT_EQ(reader.Next(fields).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(reader.line(), 3);
}

TEST(CsvReader, SplitsOnlyAtTheSeparator) {
  EXPECT_THAT(RecordsOf("a;b,c;\"d;e\"\n", ';'), ElementsAre(Record{"a", "b,c", "d;e"}));
  EXPECT_THAT(RecordsOf("a\t b\t\tc\r\n", '\t'), ElementsAre(Record{"a", "b", "", "c"}));
}

TEST(CsvReader, ALineThatBeginsWithANumberSignIsAComment) {
  CsvReader reader("# it's a \"b, c\nd,#e\n");
  std::vector<absl::string_view> fields;
  ASSERT_TRUE(*reader.Next(fields));
  EXPECT_TRUE(reader.comment());
  EXPECT_THAT(fields, ElementsAre("it's a \"b", "c"));
  ASSERT_TRUE(*reader.Next(fields));
  EXPECT_FALSE(reader.comment());
  EXPECT_THAT(fields, ElementsAre("d", "#e"));
  EXPECT_EQ(reader.line(), 2);
}

TEST(DetectCsvSeparator, ChoosesTheSeparatorThatMakesColumnsOfNumbers) {
  EXPECT_EQ(DetectCsvSeparator("a,b;c,label\n1,2,0\n"), ',');
  EXPECT_EQ(DetectCsvSeparator("a;b;label\n1;2;0\n"), ';');
  EXPECT_EQ(DetectCsvSeparator("a\tb\tlabel\n1\t2\t0\n"), '\t');
  EXPECT_EQ(DetectCsvSeparator("1,5;2,25;0\n2,5;3,75;1\n"), ';') << "decimal commas";
  EXPECT_EQ(DetectCsvSeparator("1.5,2.5,x;y\n2.5,3.5,z;w\n"), ',') << "semicolons in labels";
  EXPECT_EQ(DetectCsvSeparator("# a;b;c;d\n1,2\n"), ',') << "comments do not count";
  EXPECT_EQ(DetectCsvSeparator("1\n2\n"), ',');
}

TEST(ParseDecimal, AcceptsOnlyPlainDecimalNumbers) {
  const std::pair<const char*, double> good[] = {{"0", 0},       {"-1.5", -1.5}, {"+2", 2},      {".5", 0.5},
                                                 {"7.", 7},      {"1e5", 1e5},   {"1E-2", 0.01}, {" 3 ", 3},
                                                 {"1.5e+1", 15}, {"-0", 0},      {"007", 7}};
  for (const auto& [text, value] : good) {
    const auto decimal = ParseDecimal(text, false);
    ASSERT_TRUE(decimal.has_value()) << text;
    EXPECT_EQ(decimal->value, value) << text;
  }
  for (const char* text : {"",
                           "0x10",
                           "0X1p3",
                           "inf",
                           "-Infinity",
                           "nan",
                           "1_000",
                           "1,5",
                           "1 000",
                           "1e",
                           "e5",
                           ".",
                           "-",
                           "+-1",
                           "--1",
                           "1.2.3",
                           "1d5",
                           "1f",
                           "1e400",
                           "1e39",
                           "0b11",
                           "\xC2\xA0"
                           "1",
                           "1%",
                           "$1",
                           "1e5.5",
                           "(1)",
                           "1.5.",
                           "\xD9\xA1"}) {
    EXPECT_FALSE(ParseDecimal(text, false).has_value()) << text;
  }
}

TEST(ParseDecimal, ACommaIsADecimalMarkOnlyIfAllowed) {
  EXPECT_EQ(ParseDecimal("-0,25", true)->value, -0.25);
  EXPECT_EQ(ParseDecimal("1,5e2", true)->value, 150);
  EXPECT_FALSE(ParseDecimal("-0,25", false).has_value());
  for (const char* text : {"1.234,5", "1,234.5", "1,234,567", ","}) {
    EXPECT_FALSE(ParseDecimal(text, true).has_value()) << text;
  }
  EXPECT_TRUE(ParseDecimal("1,500", true)->maybe_thousands);
  EXPECT_FALSE(ParseDecimal("0,500", true)->maybe_thousands);
  EXPECT_FALSE(ParseDecimal("1,50", true)->maybe_thousands);
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

TEST(LoadTrainingDataFromCsv, TheLabelIsTheColumnWithAUsualNameOrTheLast) {
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

// A common form of MNIST, in which the pixels' columns are named by numbers.
TEST(LoadTrainingDataFromCsv, AHeaderMayHaveNumbersNextToTheLabelsName) {
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

TEST(LoadTrainingDataFromCsv, OtherNumbersAreRegressionTargets) {
  for (const char* text : {"x,y\n1,3\n2,0.5\n", "x,y\n1,3.0\n2,0.5\n", "x,y\n1,-3\n2,4\n"}) {
    const auto data = Load(text);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->train->num_classes(), 0) << text;
    EXPECT_EQ(data->train->num_targets(), 1);
  }
}

TEST(LoadTrainingDataFromCsv, MissingValuesAreReplacedOrRefused) {
  const std::string text = "a,b,y\n1,,0\nNaN,2,1\nNA,null,1\n";
  const auto data = Load(text, {.missing_value = -1.0f});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(1, -1));
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(-1, 2));
  EXPECT_THAT(ReadExample(*data->train, 2).inputs, ElementsAre(-1, -1));
  EXPECT_THAT(RefusalOf(text),
              HasSubstr("a.csv: line 2: column 'b' is empty, and no value for missing numbers is set"));
}

TEST(LoadTrainingDataFromCsv, BadRowsAreSkippedUpToTheLimit) {
  const std::string text = "a,y\n1,0\nred,1\n2\n3,1\n";
  EXPECT_THAT(RefusalOf(text), HasSubstr("a.csv: line 3: column 'a' holds 'red', which is not a number"));
  EXPECT_THAT(
      RefusalOf(text, {.max_bad_rows = 1}),
      HasSubstr(
          "a.csv: line 4: has 1 fields, but the first line has 2; this is bad row number 2, and 1 may be"));
  const auto data = Load(text, {.max_bad_rows = 2});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->remarks, ElementsAre(HasSubstr("a.csv: 2 bad rows are skipped, the first: ")));
  ASSERT_EQ(data->train->size(), 2);
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(3));
}

TEST(LoadTrainingDataFromCsv, TheFirstLineIsNeverSkipped) {
  EXPECT_THAT(RefusalOf("\"a\" b,y\n1,0\n", {.max_bad_rows = 5}),
              HasSubstr("a.csv: line 1: text follows the closing quote of field 1"));
}

TEST(LoadTrainingDataFromCsv, SeveralFilesFormOneSetAndValidationUsesTheTrainingClasses) {
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
              HasSubstr("validation.csv: line 2: the label in column 'y' is 'cow', which is not one of the "
                        "training set's classes"));
}

TEST(LoadTrainingDataFromCsv, SemicolonsAndTabsSeparateToo) {
  for (const char* text :
       {"a;b;label\n1.5;2;0\n-3;4;1\n", "a\tb\tlabel\n1.5\t2\t0\n-3\t4\t1\n", "1,5;2;0\r\n-3;4;1\r\n",
        "\xEF\xBB\xBF"
        "a;b;label\r\n1,50;2,0;0\r\n-3;4;1"}) {
    const auto data = Load(text);
    ASSERT_TRUE(data.ok()) << data.status();
    ASSERT_EQ(data->train->size(), 2) << text;
    EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(1.5f, 2));
    EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(-3, 4));
    EXPECT_THAT(ReadExample(*data->train, 1).target, ElementsAre(1));
  }
  const auto told = Load("a;label\n1,5;0\n");
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_THAT(told->notes,
              ElementsAre(Field(
                  &Note::text,
                  HasSubstr("a.csv: separator ';', decimal comma, label column 'label' (class indices)"))));
}

TEST(LoadTrainingDataFromCsv, AGivenSeparatorReplacesDetection) {
  const auto data = Load("1|2|0\n3|4|1\n", {.csv_separator = '|'});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(3, 4));
  EXPECT_THAT(RefusalOf("1|2|0\n"), HasSubstr("has only one column"));
  EXPECT_THAT(RefusalOf("a,label\n1,0\n", {.csv_separator = ';'}), HasSubstr("has only one column"));
}

TEST(LoadTrainingDataFromCsv, MixedOrAmbiguousDecimalMarksAreRefused) {
  EXPECT_THAT(RefusalOf("a;label\n1,5;0\n2.5;1\n"),
              HasSubstr("line 3: column 'a' holds '2.5'; earlier numbers have ',' as the decimal mark"));
  EXPECT_THAT(RefusalOf("a;label\n1.234,5;0\n"), HasSubstr("holds '1.234,5', which is not a number"));
  EXPECT_THAT(RefusalOf("a,b\n\"1,5\",0\n"), HasSubstr("holds '1,5', which is not a number"));
  EXPECT_THAT(RefusalOf("a\tlabel\n1,500\t0\n12,250\t1\n"),
              HasSubstr("its commas could be decimal marks or separate thousands"));
}

TEST(LoadTrainingDataFromCsv, FieldsThatAreNotDecimalNumbersAreRefused) {
  for (const char* field : {"0x10", "inf", "1_000", "1e99", "1 2"}) {
    EXPECT_THAT(
        RefusalOf(absl::StrCat("a,b,label\n", field, ",1,0\n1,1,1\n")),
        HasSubstr(absl::StrCat("a.csv: line 2: column 'a' holds '", field, "', which is not a number")));
  }
  EXPECT_THAT(RefusalOf("a,label\n1,0x0\n2,0x1\n"), HasSubstr("is '0x0', a hexadecimal number"));
  EXPECT_THAT(RefusalOf("\xFF\xFE"
                        "1,2"),
              HasSubstr("is UTF-16"));
}

TEST(LoadTrainingDataFromCsv, IntegralLabelsAreClassIndicesHoweverTheyAreWritten) {
  const auto data = Load("x,y\n1,1.0\n2,0.0\n3,2\n4,1.000000000000000000e+00\n");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->num_classes(), 3);
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(1));
  EXPECT_THAT(ReadExample(*data->train, 3).target, ElementsAre(1));
}

TEST(LoadTrainingDataFromCsv, TheOrderOfWordsIsReported) {
  const auto data = Load("x,y\n1,dog\n2,cat\n");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(data->notes,
              ElementsAre(Field(&Note::text, HasSubstr("label column 'y' (2 classes: 0 'cat', 1 'dog')"))));
}

TEST(LoadTrainingDataFromCsv, WordsAndNumbersAmongTheLabelsAreRefusedInEitherOrder) {
  EXPECT_THAT(RefusalOf("x,y\n1,?\n2,1\n"), HasSubstr("is '1', a number, but other labels are words"));
  EXPECT_THAT(RefusalOf("x,y\n1,1\n2,?\n"), HasSubstr("is '?', which is not a class index"));
}

TEST(LoadTrainingDataFromCsv, CommentsAreSkippedAndCounted) {
  const auto data = Load("# made by x\na,b,label\n1,2,0\n# 3,4,1\n5,6,1\n");
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->train->size(), 2);
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(5, 6));
  EXPECT_THAT(data->notes, ElementsAre(Field(&Note::text, HasSubstr("2 comments skipped"))));
}

// A header as numpy.savetxt() writes it.
TEST(LoadTrainingDataFromCsv, ACommentBeforeTheFirstRecordMayNameTheColumns) {
  const auto data = Load("# label,a,b\n2.0e+00,1.5e+00,3.0e+00\n");
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->train->size(), 1);
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(1.5f, 3));
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(2));
}

TEST(LoadTrainingDataFromCsv, ALabelThatBeginsWithANumberSignMustBeQuoted) {
  EXPECT_THAT(RefusalOf("label,a\nred,1\n#blue,2\n"), HasSubstr("a.csv: line 3: begins with '#'"));
  const auto quoted = Load("label,a\nred,1\n\"#blue\",2\n");
  ASSERT_TRUE(quoted.ok()) << quoted.status();
  EXPECT_EQ(quoted->train->size(), 2);
}

TEST(LoadTrainingDataFromCsv, DuplicateColumnNamesAreRefusedIfAmbiguous) {
  EXPECT_THAT(RefusalOf("a,label,Label\n1,0,1\n"),
              HasSubstr("columns 'label' and 'Label' could both be the label"));
  EXPECT_THAT(RefusalOf("a,a,y\n1,2,0\n", {.feature_columns = {"a"}}), HasSubstr("more than one column 'a'"));
}

TEST(LoadTrainingDataFromCsv, IntegersReachAnInputOfIntegersAsTheyAre) {
  const TemporaryDirectory dir;
  WriteText(
      dir / "a.csv",
      "weight,a,b,label\n0.5,16777217,9007199254740993,0\n1.5,-1,-9223372036854775808,1\n2,7.0,1e3,1\n");
  const auto data = LoadTrainingData({.path = dir / "a.csv",
                                      .input_names = {"number", "ids"},
                                      .input_shapes = {{1}, {2}},
                                      .input_types = {DType::kFloat32, DType::kInt64},
                                      .feature_columns = {"weight", "a", "b"}});
  ASSERT_TRUE(data.ok()) << data.status();
  InputRows rows(data->train->input_specs(), 3);
  float target = 0;
  for (int64_t row = 0; row < 3; ++row) data->train->Read(row, rows.Row(row), {&target, 1});
  EXPECT_THAT(rows.First(3)[0].floats(), ElementsAre(0.5f, 1.5f, 2.0f));
  const TensorView ids = rows.First(3)[1];
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(ids.Integer(i), kIds[i]);
  EXPECT_EQ(ids.Integer(4), 7);
  EXPECT_EQ(ids.Integer(5), 1000);
}

TEST(LoadTrainingDataFromCsv, AFractionForAnInputOfIntegersIsNamed) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.csv", "id,label\n1,0\n2.5,1\n");
  const DataOptions options = {
      .path = dir / "a.csv", .input_names = {"id"}, .input_shapes = {{1}}, .input_types = {DType::kInt64}};
  EXPECT_THAT(
      std::string(LoadTrainingData(options).status().message()),
      HasSubstr("a.csv: line 3: column 'id' holds '2.5', and the model looks up whole numbers (int64) here"));
}

// The rows of the ragged input `input` of the training set.
std::vector<std::vector<int64_t>> RaggedRows(const Dataset& dataset, size_t input) {
  std::vector<std::vector<int64_t>> all;
  std::vector<float> target(static_cast<size_t>(dataset.num_targets()));
  for (int64_t i = 0; i < dataset.size(); ++i) {
    InputRows rows(dataset.input_specs(), 1);
    dataset.Read(i, rows.Row(0), absl::MakeSpan(target));
    const TensorView row = rows.First(1)[input];
    std::vector<int64_t>& values = all.emplace_back();
    for (int64_t at = 0; at < row.shape.num_elements(); ++at) values.push_back(row.Integer(at));
  }
  return all;
}

DataOptions RaggedOptions(const TemporaryDirectory& dir) {
  return {.path = dir / "a.csv",
          .input_names = {"ids"},
          .input_shapes = {{1}},
          .input_types = {DType::kInt64},
          .ragged_inputs = {true}};
}

TEST(LoadTrainingDataFromCsv, AFieldOfARaggedInputHoldsSeveralNumbers) {
  const TemporaryDirectory dir;
  const std::vector<std::vector<int64_t>> expected = {{3}, {9007199254740993, -1}, {5, 6, 7}};
  for (const char* text :
       {"ids,label\n3,0\n9007199254740993 -1,1\n5  6\t7,0\n",
        "ids,label\n3,0\n9007199254740993|-1,1\n5 | 6|7,0\n", "3,a\n9007199254740993|-1,b\n5|6 7,a\n",
        "3|3,a\n9007199254740993|-1,b\n5|6 7,a\n"}) {
    SCOPED_TRACE(text);
    WriteText(dir / "a.csv", text);
    const auto data = LoadTrainingData(RaggedOptions(dir));
    ASSERT_TRUE(data.ok()) << data.status();
    auto rows = RaggedRows(*data->train, 0);
    if (rows[0].size() == 2) rows[0].pop_back();
    EXPECT_EQ(rows, expected);
  }
}

TEST(LoadTrainingDataFromCsv, ARaggedInputIsAColumnAmongOthers) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.csv", "a,b,ids,label\n0.5,1,3 4,0\n2,3,5,1\n");
  DataOptions options = {.path = dir / "a.csv",
                         .input_names = {"x", "ids"},
                         .input_shapes = {{2}, {1}},
                         .input_types = {DType::kFloat32, DType::kInt64},
                         .ragged_inputs = {false, true}};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(RaggedRows(*data->train, 1), (std::vector<std::vector<int64_t>>{{3, 4}, {5}}));
  InputRows rows(data->train->input_specs(), 1);
  float target = 0;
  data->train->Read(1, rows.Row(0), {&target, 1});
  EXPECT_THAT(rows.First(1)[0].floats(), ElementsAre(2, 3));
  EXPECT_EQ(target, 1);
}

// RecBole's files of three interactions of two users with two items, read by a model of `inputs`.
class RecBoleFiles : public testing::Test {
 protected:
  RecBoleFiles() {
    WriteText(dir_ / "x.inter",
              "user_id:token\titem_id:token\trating:float\nu1\t7\t4\nu2\t8\t3.5\nu1\t8\t2\n");
    WriteText(dir_ / "x.user", "user_id:token\tage:token\tvector:float_seq\nu2\t40\t1 2.5\nu1\t30\t-1 0\n");
    WriteText(dir_ / "x.item",
              "item_id:token\ttitle:token_seq\tclass:token_seq\n7\tToy Story\t1 2\n8\tHeat\t3\n");
  }
  absl::StatusOr<TrainingData> Load(DataOptions options) {
    if (options.path.empty()) options.path = dir_ / "x.inter";
    options.label_column = "rating";
    return LoadTrainingData(options);
  }
  std::string Fault(const std::string& file, const std::string& text) {
    WriteText(dir_ / file, text);
    return std::string(Load(AgeAndClass()).status().message());
  }
  static DataOptions AgeAndClass() {
    return {.input_names = {"age", "class"},
            .input_shapes = {{1}, {1}},
            .input_types = {DType::kInt64, DType::kInt64},
            .ragged_inputs = {false, true}};
  }

  const TemporaryDirectory dir_;
};

TEST_F(RecBoleFiles, ColumnsOfUsersAndItemsAreJoinedToTheInteractions) {
  const auto data = Load(AgeAndClass());
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(RaggedRows(*data->train, 0), (std::vector<std::vector<int64_t>>{{30}, {40}, {30}}));
  EXPECT_EQ(RaggedRows(*data->train, 1), (std::vector<std::vector<int64_t>>{{1, 2}, {3}, {3}}));
  EXPECT_THAT(data->train->Target(1), ElementsAre(3.5f));
}

TEST_F(RecBoleFiles, WordsOfJoinedColumnsAreHashedWithTheNameOfTheirColumn) {
  const auto data = Load({.input_names = {"user_id", "title"},
                          .input_shapes = {{1}, {1}},
                          .input_types = {DType::kInt64, DType::kInt64},
                          .ragged_inputs = {false, true},
                          .table_rows = {1000, 1000},
                          .hash_ids = true});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(RaggedRows(*data->train, 0)[1][0], HashedId("u2", SaltOf("user_id"), 1000));
  EXPECT_THAT(RaggedRows(*data->train, 1)[0],
              ElementsAre(HashedId("Toy", SaltOf("title"), 1000), HashedId("Story", SaltOf("title"), 1000)));
}

TEST_F(RecBoleFiles, AnInputOfSeveralNumbersTakesThemFromOneField) {
  DataOptions options = {.input_names = {"vector", "age"},
                         .input_shapes = {{2}, {1}},
                         .input_types = {DType::kFloat32, DType::kFloat32}};
  const auto data = Load(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(-1, 0, 30));
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(1, 2.5f, 40));
  options.input_shapes[0] = {3};
  EXPECT_THAT(std::string(Load(options).status().message()),
              HasSubstr("column 'vector' holds 2 values, and the model's input takes 3"));
}

TEST_F(RecBoleFiles, TheSetsOfADirectoryShareTheOnlyFilesOfUsersAndItems) {
  std::filesystem::rename(dir_ / "x.inter", dir_ / "train.inter");
  WriteText(dir_ / "test.inter", "user_id:token\titem_id:token\trating:float\nu2\t7\t1\n");
  DataOptions options = AgeAndClass();
  options.path = dir_.path();
  const auto data = Load(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(RaggedRows(*data->validation, 0), (std::vector<std::vector<int64_t>>{{40}}));
  WriteText(dir_ / "y.user", "user_id:token\n");
  EXPECT_THAT(std::string(Load(options).status().message()),
              HasSubstr("x.user and " + dir_ / "y.user: which of them belongs to the interactions"));
  options.input_names[0] = "vector";
  options.input_names[1] = "class";
  WriteText(dir_ / "x.item", "item_id:token\tclass:token_seq\tvector:float\n7\t1 2\t5\n8\t3\t6\n");
  const auto items = Load(options);
  ASSERT_TRUE(items.ok()) << "the file of users is not needed: " << items.status();
}

TEST_F(RecBoleFiles, OtherInteractionsDoNotTakeTheOnlyFileOfADirectory) {
  std::filesystem::rename(dir_ / "x.inter", dir_ / "y.inter");
  DataOptions options = AgeAndClass();
  options.path = dir_ / "y.inter";
  EXPECT_FALSE(Load(options).ok());
}

TEST_F(RecBoleFiles, EachPieceOfASetTakesTheOnlyFilesOfItsDirectory) {
  DataOptions options = AgeAndClass();
  for (const char* name : {"train-0.inter", "train_0.inter", "train.0.inter", "train-00000-of-00001.inter",
                           "train.inter-00000-of-00001"}) {
    WriteText(dir_ / name, "user_id:token\titem_id:token\trating:float\nu2\t7\t1\n");
    options.path = dir_ / name;
    const auto data = Load(options);
    ASSERT_TRUE(data.ok()) << name << ": " << data.status();
    EXPECT_EQ(RaggedRows(*data->train, 0), (std::vector<std::vector<int64_t>>{{40}})) << name;
  }
}

TEST_F(RecBoleFiles, JoinedColumnsAreOnlyThoseThatTheModelNames) {
  WriteText(dir_ / "x.inter", "user_id:token\titem_id:token\trating:float\n1\t7\t4\n2\t8\t3.5\n");
  const auto data = Load({});
  ASSERT_TRUE(data.ok()) << "users 1 and 2 are not in x.user: " << data.status();
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(2, 8));
}

TEST_F(RecBoleFiles, PredictionJoinsTheColumnsOfTraining) {
  DataOptions options = AgeAndClass();
  options.trained_columns = Load(options)->columns;
  WriteText(dir_ / "x.inter", "item_id:token\tuser_id:token\n8\tu2\n");
  options.path = dir_ / "x.inter";
  options.labels_optional = true;
  const auto examples = LoadExamples(options);
  ASSERT_TRUE(examples.ok()) << examples.status();
  EXPECT_EQ((*examples)->inputs->size(), 1);
  EXPECT_FALSE((*examples)->targets.has_value());
}

TEST_F(RecBoleFiles, AFaultOfAJoinedFileIsNamed) {
  EXPECT_THAT(Fault("x.user", "user_id:token\tage:token\nu1\t30\n"),
              HasSubstr("x.inter: line 3: names 'u2', which " + dir_ / "x.user does not have"));
  EXPECT_THAT(Fault("x.user", "user_id:token\tage:token\nu1\t30\nu1\t31\n"),
              HasSubstr("x.user: line 3: has 'u1' a second time"));
  EXPECT_THAT(Fault("x.user", "user_id:token\tage:token\nu1\n"),
              HasSubstr("x.user: line 2: has 1 fields, but the first line has 2"));
  EXPECT_THAT(Fault("x.user", "user:token\tage:token\nu1\t30\n"),
              HasSubstr("x.user: has 'user' as its first column"));
  EXPECT_THAT(Fault("x.user", "user_id:token\tage:token\tclass:token\nu1\t30\t1\n"),
              HasSubstr("x.item: has a column 'class' that " + dir_ / "x.user has too: rename one"));
  EXPECT_THAT(Fault("x.user", "user_id:token\tage:token\tage:token\nu1\t30\t30\n"),
              HasSubstr("x.user: has two columns 'age': rename one"));
  EXPECT_THAT(Fault("x.user", ""), HasSubstr("x.user: is empty"));
}

TEST(LoadTrainingDataFromCsv, AThresholdMakesClassesOfLabels) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.csv", "x,label\n1,4\n2,3.5\n3,-1\n");
  const DataOptions options = {.path = dir / "a.csv", .label_threshold = 3.5f};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->num_classes(), 2);
  EXPECT_THAT(data->train->Target(0), ElementsAre(1));
  EXPECT_THAT(data->train->Target(1), ElementsAre(1));
  EXPECT_THAT(data->train->Target(2), ElementsAre(0));
  EXPECT_THAT((*LoadExamples(options))->targets->values, ElementsAre(1, 1, 0));
  WriteText(dir / "a.csv", "x,label\n1,cat\n2,dog\n");
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("a.csv: --label_threshold: needs numbers, but the labels are words"));
}

TEST(LoadTrainingDataFromCsv, AThresholdAppliesToAnyNumbersOfTheValidationSet) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.csv", "x,label\n1,1\n2,5\n");
  WriteText(dir / "test.csv", "x,label\n1,3.5\n2,-1\n");
  DataOptions options = {.path = dir.path(), .label_threshold = 3.5f};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->validation->Target(0), ElementsAre(1));
  EXPECT_THAT(data->validation->Target(1), ElementsAre(0));
  options.label_threshold = {};
  EXPECT_THAT(
      std::string(LoadTrainingData(options).status().message()),
      HasSubstr("test.csv: line 2: the label in column 'label' is '3.5', which is not a class index"));
}

TEST(LoadTrainingDataFromCsv, AFieldOfIdsHoldsTheWeightsOfOneInput) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.csv", "ids,label\n3:0.5|7:2,0\n4,1\n");
  const DataOptions options = {.path = dir / "a.csv",
                               .input_names = {"ids", "w1", "w2"},
                               .input_shapes = {{1}, {1}, {1}},
                               .input_types = {DType::kInt64, DType::kFloat32, DType::kFloat32},
                               .ragged_inputs = {true, true, true},
                               .weights_of = {-1, 0, 0}};
  EXPECT_FALSE(LoadTrainingData(options).ok());
  WriteText(dir / "a.csv", "ids,w1,w2,label\n3|7,0.5|2,1|1,0\n4,1,1,1\n");
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(RaggedRows(*data->train, 0), (std::vector<std::vector<int64_t>>{{3, 7}, {4}}));
}

TEST(LoadTrainingDataFromCsv, BagsMayBeEmptyAndHaveWeights) {
  const TemporaryDirectory dir;
  DataOptions options = {.path = dir / "a.csv",
                         .input_names = {"ids", "w"},
                         .input_shapes = {{1}, {1}},
                         .input_types = {DType::kInt64, DType::kFloat32},
                         .ragged_inputs = {true, true},
                         .weights_of = {-1, 0}};
  for (const char* text : {"ids,label\n3:0.5|7:-2,0\n,1\n4,0\n", "ids,w,label\n3|7,0.5|-2,0\n,,1\n4,1,0\n",
                           "3:0.5|7:-2,0\n,1\n4,0\n"}) {
    SCOPED_TRACE(text);
    WriteText(dir / "a.csv", text);
    const auto data = LoadTrainingData(options);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(RaggedRows(*data->train, 0), (std::vector<std::vector<int64_t>>{{3, 7}, {}, {4}}));
    InputRows rows(data->train->input_specs(), 3);
    float target = 0;
    for (int64_t row : {0, 1, 2}) data->train->Read(row, rows.Row(row), {&target, 1});
    EXPECT_THAT(rows.First(3)[1].floats(), ElementsAre(0.5f, -2, 1));
    EXPECT_THAT(rows.First(3)[1].row_splits, ElementsAre(0, 2, 2, 3));
  }
  options.max_bad_rows = 1;
  WriteText(dir / "a.csv", "ids,w,label\n3|7,0.5,0\n4,1,0\n");
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->remarks,
              ElementsAre(HasSubstr("line 2: has 1 weight for input 'w', but 2 ids for input 'ids'")));
  EXPECT_EQ(RaggedRows(*data->train, 0), (std::vector<std::vector<int64_t>>{{4}}));
}

TEST(LoadTrainingDataFromCsv, BadFieldsOfARaggedInputAreNamed) {
  const TemporaryDirectory dir;
  const auto refusal = [&](const std::string& field) {
    WriteText(dir / "a.csv", absl::StrCat("ids,label\n1 2,0\n", field, ",1\n"));
    return std::string(LoadTrainingData(RaggedOptions(dir)).status().message());
  };
  EXPECT_THAT(refusal("1||2"), HasSubstr("a.csv: line 3: column 'ids' is empty"));
  EXPECT_THAT(refusal("1 x"), HasSubstr("a.csv: line 3: column 'ids' holds 'x', which is not a number"));
  EXPECT_THAT(refusal("1 2.5"), HasSubstr("column 'ids' holds '2.5', and the model looks up whole numbers"));
  WriteText(dir / "a.csv", "ids,label\n1 2,0\n3 x,1\n4,0\n");
  DataOptions options = RaggedOptions(dir);
  options.max_bad_rows = 1;
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(RaggedRows(*data->train, 0), (std::vector<std::vector<int64_t>>{{1, 2}, {4}}));
}

TEST(LoadExamples, ReadsCsvWithAndWithoutLabels) {
  const TemporaryDirectory dir;
  const auto load = [&](const std::string& text, std::vector<std::string> class_names = {}) {
    WriteText(dir / "a.csv", text);
    auto examples = LoadExamples({.path = dir / "a.csv",
                                  .example_shape = {2},
                                  .labels_optional = true,
                                  .class_names = std::move(class_names)});
    EXPECT_TRUE(examples.ok()) << examples.status();
    return **std::move(examples);
  };
  for (const char* text : {"1;2\n3;4\n", "a,b\n1,2\n3,4\n"}) {
    const auto bare = load(text);
    EXPECT_EQ(bare.inputs->size(), 2);
    EXPECT_EQ(bare.inputs->row_shape(), Shape({2}));
    EXPECT_FALSE(bare.targets.has_value());
  }
  EXPECT_THAT(load("1,2,0\n3,4,1\n").targets->values, ElementsAre(0, 1));
  EXPECT_THAT(load("label,a,b\n7,1,2\n").targets->values, ElementsAre(7));
  EXPECT_THAT(load("1,2,dog\n", {"cat", "dog"}).targets->values, ElementsAre(1));
  const auto unknown = load("1,2,dog\n");
  EXPECT_FALSE(unknown.targets.has_value());
  EXPECT_THAT(unknown.notes,
              Contains(HasSubstr("labels are words, whose order the model's files do not hold")));
}

TEST(ClassNames, AreReplacedAndRemoved) {
  const TemporaryDirectory dir;
  const std::vector<std::string> names = {"cat", "dog"}, others = {"ant", "cat"};
  EXPECT_EQ(WriteClassNames(dir.path(), {}), absl::OkStatus());
  EXPECT_EQ(WriteClassNames(dir.path(), names), absl::OkStatus());
  EXPECT_EQ(WriteClassNames(dir.path(), others), absl::OkStatus());
  EXPECT_EQ(*ReadClassNames(dir.path()), others);
  EXPECT_EQ(WriteClassNames(dir.path(), {}), absl::OkStatus());
  EXPECT_TRUE(ReadClassNames(dir.path())->empty());
}

TEST(ClassNames, SurviveWritingAndReading) {
  const TemporaryDirectory dir;
  const std::vector<std::string> names = {"", "a\\nb", "line\nend\r", "z\xE9"};
  ASSERT_TRUE(WriteClassNames(dir.path(), names).ok());
  EXPECT_EQ(*ReadClassNames(dir.path()), names);
  EXPECT_TRUE(ReadClassNames(dir / "none")->empty());
}

// Integers in a small validation set do not turn regression targets into classes.
TEST(LoadTrainingDataFromCsv, ValidationLabelsHaveTheKindOfTheTrainingSet) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.csv", "a,y\n1,0.5\n");
  WriteText(dir / "test.csv", "a,y\n4,2\n");
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->validation->num_classes(), 0);
  EXPECT_THAT(ReadExample(*data->validation, 0).target, ElementsAre(2));
}

TEST(LoadTrainingDataFromCsv, ATargetsNameHasItsFileAndIndexThere) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-0-of-2.csv", "a,label\n1,0\n2,1\n");
  WriteText(dir / "train-1-of-2.csv", "a,label\n3,0\n4,1\n");
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->TargetName(1), dir / "train-0-of-2.csv: example 1");
  EXPECT_EQ(data->train->TargetName(3), dir / "train-1-of-2.csv: example 1");
  EXPECT_THAT(data->train->Target(3), ElementsAre(1));
}

TEST(Csv, TypesInTheHeaderOfRecBoleAreNotPartOfTheNames) {
  EXPECT_THAT(WithoutTypes({"a:b:token", "c:float_seq"}), ElementsAre("a:b", "c"));
  EXPECT_THAT(WithoutTypes({"a:token", "b"}), ElementsAre("a:token", "b"));
  EXPECT_THAT(WithoutTypes({"a:int"}), ElementsAre("a:int"));
}

TEST(Csv, ReadsRecBolesInteractions) {
  const TemporaryDirectory dir;
  const std::string header = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n";
  WriteText(dir / "train.inter", header + "196\t242\t3.5\t881250949\n186\t302\t2\t891717742\n");
  WriteText(dir / "test.inter", header + "22\t377\t1\t878887116\n");
  const auto data = LoadTrainingData({.path = dir.path(),
                                      .input_names = {"user_id", "item_id"},
                                      .input_shapes = {{1}, {1}},
                                      .input_types = {DType::kInt64, DType::kInt64},
                                      .label_column = "rating"});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 2);
  EXPECT_EQ(data->validation->size(), 1);
  EXPECT_THAT(data->train->Target(0), ElementsAre(3.5f));
  EXPECT_THAT(data->columns->names, ElementsAre("user_id", "item_id", "rating", "timestamp"));
}

TEST(Csv, ReadsMovieLensUData) {
  const TemporaryDirectory dir;
  WriteText(dir / "u.data", "196\t242\t3\t881250949\n186\t302\t3\t891717742\n");
  const auto data = LoadTrainingData({.path = dir / "u.data",
                                      .input_names = {"user"},
                                      .input_shapes = {{1}},
                                      .input_types = {DType::kInt64},
                                      .label_column = "2",
                                      .feature_columns = {"0"}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadIds(*data->train, 1), ElementsAre(186));
}

TEST(Csv, HashedIdsAreOfAnyText) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.csv", "user,tags,label\nann,a b,1\n7,,0\n");
  DataOptions options = {.path = dir.path(),
                         .input_names = {"user", "tags"},
                         .input_shapes = {{1}, {1}},
                         .input_types = {DType::kInt64, DType::kInt64},
                         .ragged_inputs = {false, true},
                         .table_rows = {1000, 50},
                         .hash_ids = true};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_TRUE(data->columns->hashed_ids);
  InputRows rows(data->train->input_specs(), 2);
  float label = 0;
  for (int64_t i = 0; i < 2; ++i) data->train->Read(i, rows.Row(i), absl::MakeSpan(&label, 1));
  const TensorViews inputs = rows.First(2);
  EXPECT_EQ(inputs[0].Integer(0), HashedId("ann", SaltOf("user"), 1000));
  EXPECT_EQ(inputs[0].Integer(1), HashedId("7", SaltOf("user"), 1000));
  EXPECT_EQ(inputs[1].Integer(0), HashedId("a", SaltOf("tags"), 50));
  EXPECT_EQ(inputs[1].Integer(1), HashedId("b", SaltOf("tags"), 50));
  EXPECT_EQ(inputs[1].Integer(2), HashedId("", SaltOf("tags"), 50));

  options.table_rows[0] = 0;
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("--hash_ids: no Embedding looks up the values of input 'user'"));
  options.table_rows[0] = 1000;
  options.trained_columns = data->columns;
  options.trained_columns->hashed_ids = false;
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("--hash_ids: ids are hashed, but in training they were not"));
  options.trained_columns->hashed_ids = true;
  options.hash_ids = false;
  const auto resumed = LoadTrainingData(options);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_TRUE(resumed->columns->hashed_ids);

  // The names of the columns in training are the salts of a file without names too.
  const TemporaryDirectory bare;
  WriteText(bare / "train.csv", "ann,a b,1\n7,,0\n");
  options.path = bare.path();
  const auto nameless = LoadTrainingData(options);
  ASSERT_TRUE(nameless.ok()) << nameless.status();
  nameless->train->Read(0, rows.Row(0), absl::MakeSpan(&label, 1));
  EXPECT_EQ(rows.First(1)[0].Integer(0), HashedId("ann", SaltOf("user"), 1000));
}

}  // namespace
}  // namespace cairn::data
