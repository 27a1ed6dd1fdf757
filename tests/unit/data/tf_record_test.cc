#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/dataset.h"
#include "data/tf_record/crc32c.h"
#include "data/tf_record/tf_example.h"
#include "tests/unit/data/examples.h"
#include "tests/unit/data/image_files.h"
#include "tests/unit/data/tf_record_files.h"

namespace cairn::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Span<const uint8_t> SpanOf(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

std::string RecordRefusal(const DataOptions& options) {
  const auto status = LoadTrainingData(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

// RFC 3720, appendix B.4, and the check value from the catalogue of CRCs.
TEST(Crc32c, MatchesPublishedValues) {
  EXPECT_EQ(Crc32c(SpanOf("")), 0u);
  EXPECT_EQ(Crc32c(SpanOf("123456789")), 0xE3069283u);
  EXPECT_EQ(Crc32c(SpanOf(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(SpanOf(std::string(32, '\xFF'))), 0x62A8AB43u);
}

TEST(Crc32c, BytewiseAndEightBytewiseSumsAgree) {
  std::string bytes;
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(Crc32c(SpanOf(bytes)), BitwiseCrc32c(bytes)) << i;
    bytes.push_back(static_cast<char>(i * 37));
  }
}

TEST(LoadTrainingDataFromTfRecords, BytesAreScaledAndIntegerLabelsAreClasses) {
  const TemporaryDirectory dir;
  WriteText(
      dir / "train.tfrecord",
      TfRecord(TfExample({{"image", BytesFeature(Bytes({0, 51, 255}))}, {"label", IntegersFeature({3})}})) +
          TfRecord(TfExample({{"label", IntegersFeature({1})}, {"image", BytesFeature("abc")}})));
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->validation, nullptr);
  EXPECT_EQ(data->train->size(), 2);
  EXPECT_EQ(data->train->num_classes(), 4);
  EXPECT_EQ(data->train->example_shape(), Shape({3}));
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(0.0f, 51.0f / 255.0f, 1.0f));
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(3));
  EXPECT_THAT(ReadExample(*data->train, 1).inputs,
              ElementsAre(97.0f / 255.0f, 98.0f / 255.0f, 99.0f / 255.0f));
}

TEST(LoadTrainingDataFromTfRecords, WholeFloatLabelsAreClassIndices) {
  const TemporaryDirectory dir;
  const auto record = [](float label) {
    return TfRecord(TfExample({{"x", FloatsFeature({1.5f})}, {"y", FloatsFeature({label})}}));
  };
  WriteText(dir / "a.tfrecord", record(2.0f) + record(0.0f));
  EXPECT_EQ(LoadTrainingData({.path = dir / "a.tfrecord"})->train->num_classes(), 3);
  WriteText(dir / "a.tfrecord", record(2.0f) + record(0.5f));
  EXPECT_EQ(LoadTrainingData({.path = dir / "a.tfrecord"})->train->num_classes(), 0);
}

TEST(LoadTrainingDataFromTfRecords, ANegativeLabelIsANumber) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.tfrecord",
            TfRecord(TfExample({{"x", FloatsFeature({1.5f})}, {"y", IntegersFeature({-1})}})));
  const auto data = LoadTrainingData({.path = dir / "a.tfrecord"});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->num_classes(), 0);
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(-1));
}

TEST(LoadTrainingDataFromTfRecords, TwoFeaturesThatCouldBeTheInputOrTheLabelAreRefused) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.tfrecord", TfRecord(TfExample({{"image", FloatsFeature({1})},
                                                    {"x", FloatsFeature({2})},
                                                    {"label", IntegersFeature({0})},
                                                    {"y", IntegersFeature({1})}})));
  EXPECT_THAT(RecordRefusal({.path = dir / "a.tfrecord"}),
              HasSubstr("record 0: features 'image' and 'x' could both be the input; --feature_column"));
  EXPECT_THAT(RecordRefusal({.path = dir / "a.tfrecord", .feature_columns = {"x"}}),
              HasSubstr("record 0: features 'label' and 'y' could both be the label; --label_column"));
  const auto data =
      LoadTrainingData({.path = dir / "a.tfrecord", .label_column = "y", .feature_columns = {"x"}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(2));
}

TEST(LoadTrainingDataFromTfRecords, TrainedFeaturesAreUsedAndContradictionsRefused) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.tfrecord",
            TfRecord(TfExample(
                {{"a", FloatsFeature({1})}, {"b", FloatsFeature({2})}, {"y", IntegersFeature({1})}})));
  const Columns trained =
      *LoadTrainingData({.path = dir / "a.tfrecord", .feature_columns = {"b", "a"}})->columns;
  const auto data = LoadTrainingData({.path = dir / "a.tfrecord", .trained_columns = trained});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(2, 1));
  EXPECT_THAT(
      RecordRefusal({.path = dir / "a.tfrecord", .feature_columns = {"a", "b"}, .trained_columns = trained}),
      HasSubstr("--feature_column: the inputs are features a, b, but in training they were b, a"));
  EXPECT_THAT(RecordRefusal({.path = dir / "a.tfrecord", .label_column = "a", .trained_columns = trained}),
              HasSubstr("--label_column: the label is feature 'a', but in training it was 'y'"));
}

TEST(LoadTrainingDataFromTfRecords, FractionsAndSeveralIntegersAreNumbers) {
  const TemporaryDirectory dir;
  const auto load_with_label = [&](const std::string& label) {
    WriteText(dir / "a.tfrecord", TfRecord(TfExample({{"x", FloatsFeature({1.5f, -2.0f})}, {"y", label}})));
    auto data = LoadTrainingData({.path = dir / "a.tfrecord"});
    EXPECT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->train->num_classes(), 0);
    EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(1.5f, -2.0f));
    return ReadExample(*data->train, 0).target;
  };
  EXPECT_THAT(load_with_label(FloatsFeature({0.25f})), ElementsAre(0.25f));
  EXPECT_THAT(load_with_label(FloatsFeature({0.25f, 4.0f})), ElementsAre(0.25f, 4.0f));
  EXPECT_THAT(load_with_label(IntegersFeature({0, 1, -1})), ElementsAre(0, 1, -1));
}

// Protobuf's older encoding of lists: a tag before every element.
TEST(LoadTrainingDataFromTfRecords, ListsNeedNotBePacked) {
  const TemporaryDirectory dir;
  const std::string floats =
      Nested(2, "\x0D" + LittleEndian(0x3FC00000, 4) + "\x0D" + LittleEndian(0xC0000000, 4));
  const std::string integer = Nested(3, "\x08" + Varint(2));
  WriteText(dir / "a.tfrecord", TfRecord(TfExample({{"x", floats}, {"y", integer}})));
  const auto data = LoadTrainingData({.path = dir / "a.tfrecord"});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(1.5f, -2.0f));
  EXPECT_EQ(data->train->num_classes(), 3);
}

TEST(LoadTrainingDataFromTfRecords, SeveralFilesFormOneSetPlainOrCompressed) {
  const TemporaryDirectory dir;
  const auto record = [](int64_t value) {
    return TfRecord(TfExample({{"x", IntegersFeature({value, -value})}, {"y", IntegersFeature({value})}}));
  };
  WriteText(dir / "train-00000-of-00002.tfrecord", record(0) + record(1));
  WriteGzip(dir / "train-00001-of-00002.tfrecord.gz", record(2));
  WriteText(dir / "validation.tfrecord-00000-of-00001", record(5));
  WriteText(dir / "train-notes.tfrecord", "not of the set");
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->train->size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(ReadExample(*data->train, i).inputs, ElementsAre(i, -i));
    EXPECT_THAT(ReadExample(*data->train, i).target, ElementsAre(i));
  }
  ASSERT_NE(data->validation, nullptr);
  EXPECT_THAT(ReadExample(*data->validation, 0).target, ElementsAre(5));
}

TEST(LoadTrainingDataFromTfRecords, FeaturesAreChosenByNameInTheOrderGiven) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.tfrecords", TfRecord(TfExample({{"age", IntegersFeature({40})},
                                                     {"pixels", BytesFeature(Bytes({255}))},
                                                     {"income", FloatsFeature({0.5f})},
                                                     {"kind", IntegersFeature({1})}})));
  const DataOptions options{
      .path = dir / "a.tfrecords", .label_column = "kind", .feature_columns = {"pixels", "income", "age"}};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(1.0f, 0.5f, 40.0f));
  // Features for several inputs have the inputs' names by default.
  const auto by_input = LoadTrainingData(
      {.path = dir / "a.tfrecords", .input_names = {"age", "income"}, .label_column = "kind"});
  ASSERT_TRUE(by_input.ok()) << by_input.status();
  EXPECT_THAT(ReadExample(*by_input->train, 0).inputs, ElementsAre(40.0f, 0.5f));
  EXPECT_THAT(RecordRefusal({.path = dir / "a.tfrecords",
                             .input_names = {"age", "income"},
                             .input_shapes = {{2}, {0}},
                             .label_column = "kind"}),
              HasSubstr("'age': examples have shape [1], input 'age' of the model takes [2]"));
  EXPECT_THAT(
      RecordRefusal({.path = dir / "a.tfrecords"}),
      HasSubstr("record 0: has no feature image or image_raw or x or features or inputs or image/encoded; "
                "it has: age, income, kind, pixels"));
}

TEST(LoadTrainingDataFromTfRecord, IntegersReachAnInputOfIntegersAsTheyAre) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.tfrecords",
            TfRecord(TfExample({{"ids", IntegersFeature({kIds[0], kIds[1], kIds[2], kIds[3]})},
                                {"label", IntegersFeature({1})}})) +
                TfRecord(TfExample({{"ids", IntegersFeature({1, 2, 3, int64_t{1} << 31})},
                                    {"label", IntegersFeature({0})}})));
  DataOptions options = {.path = dir / "a.tfrecords",
                         .input_names = {"x"},
                         .input_shapes = {{4}},
                         .input_types = {DType::kInt64},
                         .feature_columns = {"ids"}};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadIds(*data->train, 0), ElementsAre(kIds[0], kIds[1], kIds[2], kIds[3]));
  EXPECT_TRUE(data->train->status().ok());
  options.input_types = {DType::kInt32};
  const auto narrow = LoadTrainingData(options);
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  ReadIds(*narrow->train, 1);
  EXPECT_THAT(
      std::string(narrow->train->status().message()),
      HasSubstr("a.tfrecords: record 1: 'ids': value 3 is 2147483648, and the model's input takes whole "
                "numbers (int32)"));
}

TEST(LoadTrainingDataFromTfRecord, ARaggedInputIsAListOfAnyLength) {
  const TemporaryDirectory dir;
  const auto record = [](const std::vector<int64_t>& ids) {
    return TfRecord(TfExample({{"ids", IntegersFeature(ids)}, {"label", IntegersFeature({1})}}));
  };
  WriteText(dir / "a.tfrecords", record({kIds[0]}) + record({kIds[1], kIds[2], kIds[3]}) + record({5, 6}));
  DataOptions options = {.path = dir / "a.tfrecords",
                         .input_names = {"x"},
                         .input_shapes = {{1}},
                         .input_types = {DType::kInt64},
                         .ragged_inputs = {true},
                         .feature_columns = {"ids"}};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  InputRows rows(data->train->input_specs(), 3);
  float target = 0;
  for (int64_t row : {0, 1, 2}) data->train->Read(row, rows.Row(row), {&target, 1});
  const TensorView ids = rows.First(3)[0];
  EXPECT_THAT(ids.row_splits, ElementsAre(0, 1, 4, 6));
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(ids.Integer(i), kIds[i]);
  const auto examples = LoadExamples(options);
  ASSERT_TRUE(examples.ok() && examples->has_value()) << examples.status();
  EXPECT_THAT((*examples)->inputs->ragged_parts(), ElementsAre(3));
  options.ragged_inputs = {};
  WriteText(dir / "a.tfrecords", record({1}) + record({1, 2}));
  EXPECT_THAT(RecordRefusal(options),
              HasSubstr("'ids': is a int64_list of 2 values, not a int64_list of 1 values"));
}

TEST(LoadTrainingDataFromTfRecord, RaggedIdsHaveWeightsAndMayBeNone) {
  const TemporaryDirectory dir;
  const auto record = [](std::map<std::string, std::string> features) {
    features["label"] = IntegersFeature({1});
    return TfRecord(TfExample(features));
  };
  DataOptions options = {.path = dir / "a.tfrecords",
                         .input_names = {"ids", "w"},
                         .input_shapes = {{1}, {1}},
                         .input_types = {DType::kInt64, DType::kFloat32},
                         .ragged_inputs = {true, true},
                         .weights_of = {-1, 0}};
  const std::string two = record({{"ids", IntegersFeature({3, 7})}, {"w", FloatsFeature({0.5f, -2})}});
  // Empty lists, features without a list, and no features.
  WriteText(dir / "a.tfrecords", record({{"ids", IntegersFeature({})}, {"w", FloatsFeature({})}}) + two +
                                     record({{"ids", ""}, {"w", ""}}) + record({}));
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  InputRows rows(data->train->input_specs(), 4);
  float target = 0;
  for (int64_t row : {0, 1, 2, 3}) data->train->Read(row, rows.Row(row), {&target, 1});
  EXPECT_THAT(rows.First(4)[0].row_splits, ElementsAre(0, 0, 2, 2, 2));
  EXPECT_EQ(rows.First(4)[0].Integer(1), 7);
  EXPECT_THAT(rows.First(4)[1].floats(), ElementsAre(0.5f, -2));

  WriteText(dir / "a.tfrecords", two + record({{"ids", IntegersFeature({3, 7})}, {"w", FloatsFeature({1})}}));
  EXPECT_THAT(RecordRefusal(options),
              HasSubstr("record 1: has 1 weight for input 'w', but 2 ids for input 'ids'"));
  WriteText(dir / "a.tfrecords", two + record({{"ids", FloatsFeature({3})}, {"w", FloatsFeature({1})}}));
  EXPECT_THAT(RecordRefusal(options),
              HasSubstr("record 1: 'ids': is a float_list; this ragged input takes an int64_list"));
  WriteText(dir / "a.tfrecords", record({{"id", IntegersFeature({3})}}));
  EXPECT_THAT(RecordRefusal(options), HasSubstr("no example has a feature 'ids'"));

  WriteText(dir / "train.tfrecord", record({{"ids", IntegersFeature({})}, {"w", FloatsFeature({})}}));
  WriteText(dir / "test.tfrecord", record({}));
  options.path = dir.path();
  const auto empty = LoadTrainingData(options);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->validation->size(), 1);
}

TEST(LoadTrainingDataFromTfRecord, AFileThatChangesAfterLoadingIsAnError) {
  const TemporaryDirectory dir;
  const auto file = [](const std::vector<int64_t>& ids) {
    return TfRecord(TfExample({{"ids", IntegersFeature(ids)}, {"label", IntegersFeature({1})}}));
  };
  // 300 has two bytes, so both files have the same size.
  const std::string one = file({300}), two = file({7, 8});
  ASSERT_EQ(one.size(), two.size());
  WriteText(dir / "a.tfrecords", one);
  const auto data = LoadTrainingData({.path = dir / "a.tfrecords",
                                      .input_names = {"ids"},
                                      .input_shapes = {{1}},
                                      .input_types = {DType::kInt64},
                                      .ragged_inputs = {true},
                                      .feature_columns = {"ids"}});
  ASSERT_TRUE(data.ok()) << data.status();
  WriteInPlace(dir / "a.tfrecords", two);
  InputRows rows(data->train->input_specs(), 1);
  float target = 0;
  data->train->Read(0, rows.Row(0), {&target, 1});
  EXPECT_THAT(rows.First(1)[0].row_splits, ElementsAre(0, 0));
  EXPECT_THAT(std::string(data->train->status().message()),
              HasSubstr("a.tfrecords: record 0: 'ids': has another number of values than when"));
}

std::string ZlibPacked(const std::string& bytes) {
  std::string packed(compressBound(bytes.size()), '\0');
  uLongf size = packed.size();
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                     reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()),
            Z_OK);
  packed.resize(size);
  return packed;
}

TEST(LoadTrainingDataFromTfRecords, ZlibFilesAreDecompressed) {
  const TemporaryDirectory dir;
  std::string file;
  for (int i = 0; i < 3; ++i) {
    file += TfRecord(TfExample({{"x", IntegersFeature({i})}, {"y", IntegersFeature({i})}}));
  }
  const std::string packed = ZlibPacked(file);
  WriteText(dir / "train.tfrecord", packed);
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->train->size(), 3);
  EXPECT_THAT(ReadExample(*data->train, 2).inputs, ElementsAre(2));
  WriteText(dir / "train.tfrecord", packed.substr(0, packed.size() - 6));
  EXPECT_THAT(RecordRefusal({.path = dir.path()}),
              HasSubstr("train.tfrecord: the compressed data is cut short"));
  WriteText(dir / "train.tfrecord", packed + "more");
  EXPECT_THAT(RecordRefusal({.path = dir.path()}),
              HasSubstr("train.tfrecord: 4 bytes follow the compressed data"));
}

TEST(LoadTrainingDataFromTfRecords, PngAndJpegAreDecoded) {
  const TemporaryDirectory dir;
  const auto record = [](const std::string& image, int64_t label) {
    return TfRecord(TfExample({{"image", BytesFeature(image)}, {"label", IntegersFeature({label})}}));
  };
  WriteText(dir / "train.tfrecord", record(Png({.width = 2, .height = 2, .rows = {0, 51, 102, 255}}), 1) +
                                        record(Jpeg(2, 2, 1, {204, 204, 204, 204}), 0));
  for (const Shape& input : {Shape({2, 2, 1}), Shape({4}), Shape({2, 2})}) {
    const auto data = LoadTrainingData({.path = dir.path(), .example_shape = input});
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(0, 51 / 255.0f, 102 / 255.0f, 1));
    EXPECT_THAT(ReadExample(*data->train, 1).inputs, Each(204 / 255.0f));
    EXPECT_EQ(data->train->example_shape(), input.rank() > 1 ? input : Shape({2, 2, 1}));
  }
  EXPECT_THAT(RecordRefusal({.path = dir.path(), .example_shape = {4, 4, 1}}),
              HasSubstr("train.tfrecord: record 0: 'image': is an image of the shape [2,2,1], not [4,4,1]"));
}

TEST(LoadTrainingDataFromTfRecords, PixelsThatLookLikeAnImageFileStayPixels) {
  const TemporaryDirectory dir;
  WriteText(
      dir / "train.tfrecord",
      TfRecord(TfExample({{"image", BytesFeature("\xFF\xD8\xFF\x33")}, {"label", IntegersFeature({0})}})));
  const auto data = LoadTrainingData({.path = dir.path(), .example_shape = {2, 2, 1}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(1, 216 / 255.0f, 1, 51 / 255.0f));
}

TEST(LoadTrainingDataFromTfRecords, AnImageThatCannotBeDecodedIsNamedByItsRecord) {
  const TemporaryDirectory dir;
  const auto record = [](const std::string& image) {
    return TfRecord(TfExample({{"image", BytesFeature(image)}, {"label", IntegersFeature({0})}}));
  };
  WriteText(dir / "train.tfrecord", record(FlatPng(2, 2, 9)) + record(FlatPng(2, 2, 9).substr(0, 45)));
  const auto data = LoadTrainingData({.path = dir.path(), .example_shape = {2, 2, 1}});
  ASSERT_TRUE(data.ok()) << data.status();
  ReadExample(*data->train, 0);
  EXPECT_EQ(data->train->status(), absl::OkStatus());
  ReadExample(*data->train, 1);
  EXPECT_THAT(std::string(data->train->status().message()),
              HasSubstr("train.tfrecord: record 1: 'image': is a damaged PNG"));
}

TEST(LoadTrainingDataFromTfRecords, FilesAndFeaturesAreFoundAsTfSlimAndTfdsNameThem) {
  const std::string slim = TfRecord(TfExample({{"image/class/label", IntegersFeature({3})},
                                               {"image/encoded", BytesFeature(FlatPng(1, 1, 255))},
                                               {"image/format", BytesFeature("png")}}));
  const std::string tfds =
      TfRecord(TfExample({{"image", BytesFeature(FlatPng(1, 1, 255))}, {"label", IntegersFeature({3})}}));
  struct Names {
    std::vector<const char*> train;
    const char* validation;
    std::string record;
  };
  const Names names[] = {
      {{"train-00000-of-00002", "train-00001-of-00002"}, "validation-00000-of-00001", slim},
      {{"flowers_train_00000-of-00001.tfrecord"}, "flowers_validation_00000-of-00001.tfrecord", slim},
      {{"mnist_train.tfrecord"}, "mnist_test.tfrecord", slim},
      {{"mnist-train.tfrecord-00000-of-00002", "mnist-train.tfrecord-00001-of-00002"},
       "mnist-test.tfrecord-00000-of-00001",
       tfds}};
  for (const Names& set : names) {
    const TemporaryDirectory dir;
    for (const char* name : set.train) WriteText(dir / name, set.record);
    WriteText(dir / set.validation, set.record + set.record);
    const auto data = LoadTrainingData({.path = dir.path(), .example_shape = {1}});
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->train->size(), static_cast<int64_t>(set.train.size()));
    EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(1));
    EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(3));
    ASSERT_NE(data->validation, nullptr) << set.validation;
    EXPECT_EQ(data->validation->size(), 2);
  }
}

TEST(LoadTrainingDataFromTfRecords, FilesOfTwoDataSetsAreRefused) {
  const TemporaryDirectory dir;
  WriteText(dir / "a-train.tfrecord", "");
  WriteText(dir / "b-train.tfrecord", "");
  EXPECT_THAT(RecordRefusal({.path = dir.path()}), HasSubstr("has the training files of 'a' and of 'b'"));
}

TEST(LoadExamples, ReadsTfRecordsWithAndWithoutLabels) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.tfrecord", TfRecord(TfExample({{"x", IntegersFeature({4, 5})}})));
  const auto bare = LoadExamples({.path = dir / "a.tfrecord", .labels_optional = true});
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_FALSE((*bare)->targets.has_value());
  WriteText(dir / "b.tfrecord",
            TfRecord(TfExample({{"x", IntegersFeature({4, 5})}, {"y", IntegersFeature({1})}})));
  const auto labelled = LoadExamples({.path = dir / "b.tfrecord", .labels_optional = true});
  ASSERT_TRUE(labelled.ok()) << labelled.status();
  EXPECT_THAT((*labelled)->targets->values, ElementsAre(1));
}

TEST(LoadTrainingDataFromTfRecords, BadRecordsAreSkippedUpToTheLimit) {
  const TemporaryDirectory dir;
  const auto record = [](const std::string& x) {
    return TfRecord(TfExample({{"x", x}, {"y", IntegersFeature({1})}}));
  };
  std::string damaged = record(FloatsFeature({3.0f}));
  damaged[20] ^= 1;
  WriteText(dir / "a.tfrecord", record(FloatsFeature({1.0f})) + damaged +
                                    record(FloatsFeature({1.0f, 2.0f})) + record(FloatsFeature({4.0f})));
  EXPECT_THAT(RecordRefusal({.path = dir / "a.tfrecord"}), HasSubstr("a.tfrecord: record 1: its "));
  EXPECT_THAT(
      RecordRefusal({.path = dir / "a.tfrecord", .max_bad_rows = 1}),
      HasSubstr("record 2: 'x': is a float_list of 2 values, not a float_list of 1 values as in the first "
                "example; this is bad row number 2, and 1 may be skipped"));
  const auto data = LoadTrainingData({.path = dir / "a.tfrecord", .max_bad_rows = 2});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->remarks, ElementsAre(HasSubstr("a.tfrecord: 2 bad rows are skipped, the first: ")));
  ASSERT_EQ(data->train->size(), 2);
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(4.0f));
}

// After a wrong length nothing can be found.
TEST(LoadTrainingDataFromTfRecords, AWrongLengthIsRefusedEvenIfRecordsMayBeSkipped) {
  const TemporaryDirectory dir;
  const std::string good = TfRecord(TfExample({{"x", FloatsFeature({1.0f})}, {"y", IntegersFeature({1})}}));
  std::string damaged = good;
  damaged[0] ^= 1;
  WriteText(dir / "a.tfrecord", good + damaged + good);
  EXPECT_THAT(RecordRefusal({.path = dir / "a.tfrecord", .max_bad_rows = 100}),
              HasSubstr("a.tfrecord: record 1: its length does not match its checksum"));
}

TEST(ParseExample, SkipsUnknownFields) {
  const std::string unknown = Varint(9 << 3) + Varint(77) + Varint(10 << 3 | 1) + std::string(8, 'x') +
                              Varint(11 << 3 | 5) + std::string(4, 'x') + Nested(12, "xyz");
  const std::string example =
      unknown +
      Nested(1, unknown + Nested(1, Nested(1, "a") + unknown + Nested(2, IntegersFeature({7}) + unknown)));
  const auto features = ParseExample(SpanOf(example));
  ASSERT_TRUE(features.ok()) << features.status();
  ASSERT_EQ(features->size(), 1u);
  EXPECT_EQ(features->front().name, "a");
  EXPECT_EQ(OneInteger(features->front().feature), 7);
}

TEST(TfRecordDataset, IdsAreNotHashed) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.tfrecord",
            TfRecord(TfExample({{"x", IntegersFeature({1})}, {"y", IntegersFeature({1})}})));
  EXPECT_THAT(std::string(LoadTrainingData({.path = dir.path(), .hash_ids = true}).status().message()),
              HasSubstr("--hash_ids applies to Criteo, CSV and libsvm"));
}

}  // namespace
}  // namespace cairn::data
