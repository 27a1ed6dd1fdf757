#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/data/examples.h"
#include "tests/unit/data/tf_record_files.h"
#include "worker/data/crc32c.h"
#include "worker/data/dataset.h"
#include "worker/data/tf_example.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Span<const uint8_t> SpanOf(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

std::string RefusalOf(const DataOptions& options) {
  const auto status = LoadTrainingData(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

// RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
TEST(Crc32c, KnowsThePublishedValues) {
  EXPECT_EQ(Crc32c(SpanOf("")), 0u);
  EXPECT_EQ(Crc32c(SpanOf("123456789")), 0xE3069283u);
  EXPECT_EQ(Crc32c(SpanOf(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(SpanOf(std::string(32, '\xFF'))), 0x62A8AB43u);
}

TEST(Crc32c, IsTheSameByBytesAndByEights) {
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

TEST(LoadTrainingDataFromTfRecords, FloatLabelsAndSeveralIntegersAreNumbers) {
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

TEST(LoadTrainingDataFromTfRecords, SeveralFilesAreOneSetPlainOrPacked) {
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
  // The model's several inputs are features of these names, unless told otherwise.
  const auto by_input = LoadTrainingData(
      {.path = dir / "a.tfrecords", .input_names = {"age", "income"}, .label_column = "kind"});
  ASSERT_TRUE(by_input.ok()) << by_input.status();
  EXPECT_THAT(ReadExample(*by_input->train, 0).inputs, ElementsAre(40.0f, 0.5f));
  EXPECT_THAT(
      RefusalOf({.path = dir / "a.tfrecords"}),
      HasSubstr("record 0: has no feature image or image_raw or x or features or inputs; it has: age, "
                "income, kind, pixels"));
}

TEST(LoadTrainingDataFromTfRecords, BadRecordsAreLeftOutUpToTheLimit) {
  const TemporaryDirectory dir;
  const auto record = [](const std::string& x) {
    return TfRecord(TfExample({{"x", x}, {"y", IntegersFeature({1})}}));
  };
  std::string damaged = record(FloatsFeature({3.0f}));
  damaged[20] ^= 1;
  WriteText(dir / "a.tfrecord", record(FloatsFeature({1.0f})) + damaged +
                                    record(FloatsFeature({1.0f, 2.0f})) + record(FloatsFeature({4.0f})));
  EXPECT_THAT(RefusalOf({.path = dir / "a.tfrecord"}), HasSubstr("a.tfrecord: record 1: its "));
  EXPECT_THAT(
      RefusalOf({.path = dir / "a.tfrecord", .max_bad_rows = 1}),
      HasSubstr("record 2: 'x': is a float_list of 2 values, not a float_list of 1 values as in the first "
                "example; it is bad row number 2, and 1 may be left out"));
  const auto data = LoadTrainingData({.path = dir / "a.tfrecord", .max_bad_rows = 2});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->remarks, ElementsAre(HasSubstr("a.tfrecord: 2 bad rows are left out, the first: ")));
  ASSERT_EQ(data->train->size(), 2);
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(4.0f));
}

// Behind a length that is wrong nothing can be found.
TEST(LoadTrainingDataFromTfRecords, AWrongLengthIsRefusedWhateverMayBeLeftOut) {
  const TemporaryDirectory dir;
  const std::string good = TfRecord(TfExample({{"x", FloatsFeature({1.0f})}, {"y", IntegersFeature({1})}}));
  std::string damaged = good;
  damaged[0] ^= 1;
  WriteText(dir / "a.tfrecord", good + damaged + good);
  EXPECT_THAT(RefusalOf({.path = dir / "a.tfrecord", .max_bad_rows = 100}),
              HasSubstr("a.tfrecord: record 1: its length does not fit its checksum"));
}

TEST(ParseExample, PassesOverFieldsThatItDoesNotKnow) {
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

}  // namespace
}  // namespace cairn::data
