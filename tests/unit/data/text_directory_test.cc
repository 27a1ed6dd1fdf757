// Folders of text files, one for each class.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/ids/id_map.h"
#include "common/ids/text_ids.h"
#include "data/dataset.h"
#include "data/input_rows.h"
#include "tests/unit/data/data_files.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Options for a model of one text whose words have the ids 2 ("good") and 3 ("bad").
DataOptions OptionsFor(const std::string& path, int64_t length) {
  auto words =
      MakeTextVocabulary({.layer = "words", .first_token = 2, .first_other = 1}, {"good", "bad"}, "");
  return {.path = path,
          .input_names = {"text"},
          .input_shapes = {{std::max<int64_t>(length, 1)}},
          .input_types = {DType::kInt64},
          .ragged_inputs = {length == 0},
          .id_maps = {MakeTextIds({.length = length}, std::move(words))},
          .text_inputs = {true}};
}

std::vector<int64_t> IdsOf(const Dataset& dataset, int64_t example) {
  InputRows rows(dataset.input_specs(), 1);
  std::vector<float> target(1);
  dataset.Read(example, rows.Row(0), absl::MakeSpan(target));
  std::vector<int64_t> ids;
  const TensorViews inputs = rows.First(1);
  for (int64_t i = 0; i < inputs[0].shape.num_elements(); ++i) ids.push_back(inputs[0].Integer(i));
  return ids;
}

class TextDirectory : public testing::Test {
 protected:
  TextDirectory() {
    for (const char* set : {"train", "test"}) {
      for (const char* folder : {"negative", "positive"})
        std::filesystem::create_directories(dir_ / (std::string(set) + "/" + folder));
    }
    WriteText(dir_ / "train/positive/b.txt", "Good, good\nfilm");
    WriteText(dir_ / "train/positive/a.txt", "good");
    WriteText(dir_ / "train/negative/c.txt", "Bad!");
    WriteText(dir_ / "train/negative/notes.md", "no example");
    WriteText(dir_ / "test/negative/d.txt", "");
  }

  const TemporaryDirectory dir_;
};

TEST_F(TextDirectory, AFileIsAnExampleOfTheClassOfItsFolder) {
  const auto data = LoadTrainingData(OptionsFor(dir_.path(), 3));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->class_names, ElementsAre("negative", "positive"));
  ASSERT_EQ(data->train->size(), 3);
  EXPECT_THAT(IdsOf(*data->train, 0), ElementsAre(3, 0, 0));
  EXPECT_THAT(IdsOf(*data->train, 1), ElementsAre(2, 0, 0));
  EXPECT_THAT(IdsOf(*data->train, 2), ElementsAre(2, 2, 1));
  EXPECT_THAT(data->train->Target(0), ElementsAre(0));
  EXPECT_THAT(data->train->Target(2), ElementsAre(1));
  ASSERT_NE(data->validation, nullptr);
  EXPECT_THAT(IdsOf(*data->validation, 0), ElementsAre(0, 0, 0));
}

TEST_F(TextDirectory, IdsOfARaggedInputAreAsManyAsTheWords) {
  const auto data = LoadTrainingData(OptionsFor(dir_.path(), 0));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(IdsOf(*data->train, 0), ElementsAre(3));
  EXPECT_THAT(IdsOf(*data->train, 2), ElementsAre(2, 2, 1));
}

TEST_F(TextDirectory, FilesOfAFolderArePredictedInTheOrderOfTheirNames) {
  DataOptions options = OptionsFor(dir_ / "train/positive", 2);
  options.labels_optional = true;
  const auto examples = LoadExamples(options);
  ASSERT_TRUE(examples.ok() && examples->has_value()) << examples.status();
  EXPECT_EQ((*examples)->inputs->size(), 2);
  EXPECT_THAT((*examples)->notes, ElementsAre(HasSubstr("2 texts in the order of their names")));
}

TEST_F(TextDirectory, AModelOfNumbersDoesNotReadTexts) {
  const auto data = LoadTrainingData({.path = dir_.path()});
  EXPECT_THAT(std::string(data.status().message()), HasSubstr("no data set found"));
}

}  // namespace
}  // namespace cairn::data
