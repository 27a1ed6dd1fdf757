#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/dataset.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/examples.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;

// A record whose planes are all `red`, all `green` and all `blue`, except for the first red pixel, which is
// 255.
std::string Record(std::initializer_list<int> labels, int red, int green, int blue) {
  std::string record = Bytes(labels);
  for (const int value : {red, green, blue}) record.append(1024, static_cast<char>(value));
  record[labels.size()] = '\xFF';
  return record;
}

std::vector<float> PixelOf(const Example& example, size_t pixel) {
  return {example.inputs.begin() + static_cast<int64_t>(3 * pixel),
          example.inputs.begin() + static_cast<int64_t>(3 * pixel + 3)};
}

TEST(LoadTrainingDataFromCifar, PlanesBecomeChannelsAndFilesFormOneSet) {
  const TemporaryDirectory dir;
  WriteText(dir / "data_batch_2.bin", Record({7}, 0, 51, 102));
  WriteText(dir / "data_batch_1.bin", Record({3}, 1, 2, 3) + Record({4}, 4, 5, 6));
  WriteText(dir / "test_batch.bin", Record({9}, 0, 0, 0));
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->example_shape(), Shape({32, 32, 3}));
  EXPECT_EQ(data->train->num_classes(), 10);
  ASSERT_EQ(data->train->size(), 3);
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(3));
  EXPECT_THAT(ReadExample(*data->train, 1).target, ElementsAre(4));
  const Example last = ReadExample(*data->train, 2);
  EXPECT_THAT(last.target, ElementsAre(7));
  EXPECT_THAT(PixelOf(last, 0), ElementsAre(1.0f, 51.0f / 255.0f, 102.0f / 255.0f));
  EXPECT_THAT(PixelOf(last, 1023), ElementsAre(0.0f, 51.0f / 255.0f, 102.0f / 255.0f));
  EXPECT_THAT(ReadExample(*data->validation, 0).target, ElementsAre(9));
}

TEST(LoadTrainingDataFromCifar, TheCoarseLabelOfCifar100IsIgnored) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.bin", Record({19, 99}, 1, 2, 3));
  const auto data = LoadTrainingData({.path = dir.path(), .input_scale = 1.0f});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->num_classes(), 100);
  EXPECT_EQ(data->validation, nullptr);
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(99));
  EXPECT_THAT(PixelOf(ReadExample(*data->train, 0), 1), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace cairn::data
