#include "worker/export/preprocessing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace cairn::worker {
namespace {

using ::testing::HasSubstr;

Preprocessing Scaled(bool bytes, float scale, std::optional<float> given = {}) {
  return {.inputs = {{.name = "x", .bytes = bytes, .scale = scale}}, .input_scale = given};
}

Preprocessing OfColumns(std::vector<std::string> names) {
  Preprocessing preprocessing = Scaled(false, 1);
  preprocessing.columns =
      data::Columns{.format = data::kCsvFormat, .names = std::move(names), .inputs = {1, 0}, .label = 2};
  return preprocessing;
}

TEST(Preprocessing, HasTheFactorsOfBytesAndNumbers) {
  data::DataOptions options{.raw_bytes = {false, true, false}, .input_names = {"a", "b", "c"}};
  const Preprocessing usual = PreprocessingOf(options, {true, true, false}, {});
  EXPECT_EQ(usual.inputs[0], (Preprocessing::Input{"a", true, 1 / 255.0f}));
  EXPECT_EQ(usual.inputs[1], (Preprocessing::Input{"b", true, 1}));
  EXPECT_EQ(usual.inputs[2], (Preprocessing::Input{"c", false, 1}));
  EXPECT_FALSE(usual.input_scale.has_value());
  options.input_scale = 0.5f;
  EXPECT_EQ(PreprocessingOf(options, {}, {}).inputs[2].scale, 0.5f);
  EXPECT_EQ(PreprocessingOf(options, {}, {}).input_scale, 0.5f);
}

TEST(Preprocessing, SurvivesWritingAndReading) {
  Preprocessing all =
      OfColumns({"gr\xC3\xB6\xC3\x9F"
                 "e",
                 "latin \xE9", "a\\n\"b\n"});
  all.columns->missing_value = -1.5f;
  all.columns->hashed_ids = true;
  all.label_threshold = 3.5f;
  for (const Preprocessing& preprocessing :
       {Scaled(true, 1 / 255.0f), Scaled(false, 0.1f, 0.1f), OfColumns({"a", "b", "c"}), all}) {
    const auto read = ParsePreprocessing(ToText(preprocessing), "p.json");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, preprocessing);
  }
  EXPECT_THAT(ToText(all), HasSubstr("\"gr\xC3\xB6\xC3\x9F"
                                     "e\""))
      << "valid UTF-8 stays readable";
}

TEST(Preprocessing, MalformedTextIsRefused) {
  const std::string good = ToText(OfColumns({"a", "b", "c"}));
  const auto refusal = [](const std::string& text) {
    const auto read = ParsePreprocessing(text, "p.json");
    EXPECT_TRUE(absl::IsInvalidArgument(read.status()));
    return std::string(read.status().message());
  };
  for (const char* text : {"", "[]", "{}", "{\"inputs\": 3}", "{\"inputs\": [{\"name\": 1}]}"}) {
    EXPECT_THAT(refusal(text), HasSubstr("p.json")) << text;
  }
  EXPECT_THAT(
      refusal(absl::StrReplaceAll(good, {{"\"label\": 2", "\"label\": 3"}})),
      HasSubstr("p.json: is not a file that training writes: columns.label is 3, but there are 3 names"));
  EXPECT_THAT(refusal(absl::StrReplaceAll(good, {{"\"c\"\n", "{}\n"}})), HasSubstr("p.json"));
  for (const char* index : {"1.5", "-1", "1e300"}) {
    EXPECT_THAT(refusal(absl::StrReplaceAll(good, {{"\"label\": 2", absl::StrCat("\"label\": ", index)}})),
                HasSubstr("p.json"))
        << index;
  }
}

TEST(Preprocessing, FillsInOptionsThatFlagsLeaveOpen) {
  const Preprocessing trained = Scaled(false, 0.5f, 0.5f);
  data::DataOptions open;
  UseWhereOpen(trained, open);
  EXPECT_EQ(open.input_scale, 0.5f);
  data::DataOptions given{.input_scale = 2};
  UseWhereOpen(trained, given);
  EXPECT_EQ(given.input_scale, 2);
}

TEST(Preprocessing, TheThresholdOfLabelsIsThatOfTraining) {
  Preprocessing trained = Scaled(false, 1);
  trained.label_threshold = 4;
  data::DataOptions open;
  UseWhereOpen(trained, open);
  EXPECT_EQ(open.label_threshold, 4);
  EXPECT_EQ(DescribeUse(trained, trained), "--label_threshold 4");
  EXPECT_THAT(std::string(CheckSame(trained, Scaled(false, 1)).message()),
              HasSubstr("--label_threshold is none, in training it was 4"));
}

TEST(Preprocessing, TextWithoutAThresholdHasNone) {
  nlohmann::json text = nlohmann::json::parse(ToText(Scaled(false, 1)));
  ASSERT_EQ(text.erase("label_threshold"), 1u);
  const auto read = ParsePreprocessing(text.dump(), "p.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->label_threshold.has_value());
}

TEST(Preprocessing, DifferentFactorForTheSameTypeIsRefused) {
  const std::string refusal(CheckSame(Scaled(true, 1 / 255.0f), Scaled(true, 1)).message());
  EXPECT_THAT(refusal, HasSubstr("--input_scale: the uint8 values of input 'x' are multiplied by 1, in "
                                 "training by 0.00392157"));
  EXPECT_EQ(CheckSame(Scaled(true, 0.5f, 0.5f), Scaled(true, 0.5f)), absl::OkStatus());
  EXPECT_EQ(CheckSame(Scaled(true, 1 / 255.0f), Scaled(false, 1)), absl::OkStatus());
}

TEST(Preprocessing, DifferentColumnsAreRefused) {
  const Preprocessing trained = OfColumns({"a", "b", "y"});
  EXPECT_EQ(CheckSame(trained, trained), absl::OkStatus());
  EXPECT_THAT(std::string(CheckSame(trained, OfColumns({"b", "a", "y"})).message()),
              HasSubstr("--feature_column: the inputs are columns a, b, but in training they were b, a"));
}

TEST(Preprocessing, DescribesTheSettingsTakenOver) {
  EXPECT_EQ(DescribeUse(Scaled(true, 1 / 255.0f), Scaled(true, 1 / 255.0f)), "");
  EXPECT_EQ(DescribeUse(Scaled(true, 0.5f, 0.5f), Scaled(true, 0.5f, 0.5f)), "--input_scale 0.5");
  EXPECT_EQ(DescribeUse(Scaled(true, 1 / 255.0f), Scaled(false, 1)),
            "input 'x' has numbers, multiplied by 1 (in training uint8 values, by 0.00392157)");
  EXPECT_EQ(DescribeUse(OfColumns({"a", "b", "y"}), OfColumns({"a", "b", "y"})), "columns b, a; label y");
}

}  // namespace
}  // namespace cairn::worker
