#include "data/image/synthetic_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "data/dataset.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/examples.h"

namespace cairn::data {
namespace {

using ::testing::HasSubstr;

TEST(SyntheticShapes, ImagesHaveAClassForEachPixel) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteSyntheticShapes(dir.path(), {.train_images = 100, .test_images = 20}).ok());
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 100);
  ASSERT_NE(data->validation, nullptr);
  EXPECT_EQ(data->validation->size(), 20);
  EXPECT_EQ(data->train->example_shape(), Shape({32, 32, 1}));
  const TargetInfo targets = data->train->target_info();
  EXPECT_EQ(targets.shape, Shape({32, 32}));
  EXPECT_EQ(targets.position_classes, kShapesClasses);
  // Each class occurs, and shapes are brighter than the background.
  std::array<double, kShapesClasses> pixels = {}, brightness = {};
  for (int64_t i = 0; i < data->train->size(); ++i) {
    const Example example = ReadExample(*data->train, i);
    for (size_t pixel = 0; pixel < example.target.size(); ++pixel) {
      const auto kind = static_cast<size_t>(example.target[pixel]);
      ++pixels[kind];
      brightness[kind] += example.inputs[pixel];
    }
  }
  for (size_t kind = 0; kind < pixels.size(); ++kind) {
    EXPECT_GT(pixels[kind], 0.02 * 100 * 32 * 32) << kind;
    brightness[kind] /= pixels[kind];
  }
  EXPECT_NEAR(brightness[0], 0.3, 0.05);
  for (size_t kind = 1; kind < pixels.size(); ++kind) EXPECT_NEAR(brightness[kind], 0.8, 0.05) << kind;
}

TEST(SyntheticShapes, AnImageDependsOnTheSeedAndItsPlaceOnly) {
  const TemporaryDirectory few, many, other;
  ASSERT_TRUE(WriteSyntheticShapes(few.path(), {.train_images = 2, .test_images = 1, .seed = 3}).ok());
  ASSERT_TRUE(WriteSyntheticShapes(many.path(), {.train_images = 5, .test_images = 1, .seed = 3}).ok());
  ASSERT_TRUE(WriteSyntheticShapes(other.path(), {.train_images = 2, .test_images = 1, .seed = 4}).ok());
  const auto second = [](const TemporaryDirectory& dir) {
    return ReadExample(*LoadTrainingData({.path = dir.path()}).value().train, 1).inputs;
  };
  EXPECT_EQ(second(few), second(many));
  EXPECT_NE(second(few), second(other));
}

TEST(SyntheticShapes, NumbersOfImagesHaveLimits) {
  EXPECT_THAT(std::string(WriteSyntheticShapes("unused", {.train_images = 0}).message()),
              HasSubstr("cannot write 0 images; 1 to 1000000"));
}

}  // namespace
}  // namespace cairn::data
