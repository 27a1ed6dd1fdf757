#include "worker/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/data/data_files.h"
#include "tests/unit/data/examples.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two images of 2x2 and their labels.
const std::string kImages = IdxHeader(0x08, {2, 2, 2}) + Bytes({0, 51, 102, 255, 1, 2, 3, 4});
const std::string kLabels = IdxHeader(0x08, {2}) + Bytes({3, 1});

std::string RefusalOf(const DataOptions& options) {
  const auto status = LoadTrainingData(options).status();
  EXPECT_FALSE(status.ok());
  return std::string(status.message());
}

TEST(LoadTrainingData, ReadsMnistsNamesWithAndWithoutGzip) {
  const TemporaryDirectory dir;
  WriteGzip(dir / "train-images-idx3-ubyte.gz", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", kLabels);
  WriteText(dir / "t10k-images.idx3-ubyte", kImages);
  WriteGzip(dir / "t10k-labels.idx1-ubyte.gz", kLabels);
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_NE(data->validation, nullptr);
  EXPECT_EQ(data->train->size(), 2);
  EXPECT_EQ(data->train->num_classes(), 4);
  EXPECT_EQ(data->train->example_shape(), Shape({2, 2, 1}));
  EXPECT_THAT(ReadExample(*data->validation, 1).target, ElementsAre(1));
}

TEST(LoadTrainingData, ByteImagesAreDividedBy255AsKerasUsersDo) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", kLabels);
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->validation, nullptr);
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(3));
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(0.0f, 51.0f / 255.0f, 102.0f / 255.0f, 1.0f));
}

TEST(LoadTrainingData, AnExplicitScaleIsAFactor) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", kLabels);
  const auto data = LoadTrainingData({.path = dir.path(), .input_scale = 0.5f});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(0.5f, 1.0f, 1.5f, 2.0f));
}

TEST(LoadTrainingData, FloatInputsAreNotScaled) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte",
            IdxHeader(0x0D, {1, 2}) + Bytes({0x3F, 0xC0, 0, 0, 0xC3, 0x7F, 0, 0}));
  WriteText(dir / "train-labels-idx1-ubyte", IdxHeader(0x0C, {1}) + Bytes({0, 0, 0, 9}));
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->example_shape(), Shape({2}));
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(9));
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(1.5f, -255.0f));
}

TEST(LoadTrainingData, ALimitTakesTheFirstExamples) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", IdxHeader(0x08, {2}) + Bytes({1, 3}));
  const auto data = LoadTrainingData({.path = dir.path(), .limit = 1});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 1);
  EXPECT_EQ(data->train->num_classes(), 4);
  EXPECT_EQ(LoadTrainingData({.path = dir.path(), .limit = 9})->train->size(), 2);
}

TEST(LoadTrainingData, WhatIsMissingIsNamed) {
  const TemporaryDirectory dir;
  EXPECT_EQ(RefusalOf({.path = dir / "nowhere"}), dir / "nowhere" + ": no such file or directory");
  EXPECT_EQ(RefusalOf({}), "the data directory is not given");
  const auto status = LoadTrainingData({.path = dir.path()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("train-images-idx3-ubyte[.gz]"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("mnist.npz"));
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  EXPECT_THAT(RefusalOf({.path = dir.path()}),
              HasSubstr("is there, but not " + dir / "train-labels-idx1-ubyte[.gz]"));
}

TEST(LoadTrainingData, ArraysThatMakeNoDataSetAreRefusedByName) {
  const std::string images = "train-images-idx3-ubyte", labels = "train-labels-idx1-ubyte";
  const struct {
    std::string images, labels;
    const char* words;
  } kCases[] = {
      {kImages, IdxHeader(0x08, {3}) + "abc", "has 2 examples, but"},
      {kImages, IdxHeader(0x09, {2}) + Bytes({1, 0xFF}),
       "train-labels-idx1-ubyte: label -1 of example 1 is no class"},
      {kImages, IdxHeader(0x0C, {2}) + Bytes({0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0}),
       "label 2147483647 of example 0"},
      {kImages, IdxHeader(0x0D, {2}) + std::string(8, '\0'), "labels are float32; they must be integers"},
      {kImages, IdxHeader(0x08, {2, 10}) + std::string(20, '\0'), "labels have the shape [2,10]"},
      {IdxHeader(0x08, {0, 2, 2}), IdxHeader(0x08, {0}), "train-images-idx3-ubyte: holds no examples"},
      {IdxHeader(0x08, {2, 0, 2}), kLabels, "examples of the shape [2,0,2] are empty"},
  };
  const TemporaryDirectory dir;
  for (const auto& test : kCases) {
    WriteText(dir / images, test.images);
    WriteText(dir / labels, test.labels);
    EXPECT_THAT(RefusalOf({.path = dir.path()}), HasSubstr(test.words));
  }
}

TEST(LoadTrainingData, ValidationExamplesMustHaveTheTrainingShape) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", kLabels);
  WriteText(dir / "t10k-images-idx3-ubyte", IdxHeader(0x08, {2, 1, 2}) + "abcd");
  WriteText(dir / "t10k-labels-idx1-ubyte", kLabels);
  EXPECT_THAT(
      RefusalOf({.path = dir.path()}),
      HasSubstr(
          "t10k-images-idx3-ubyte: examples have the shape [1,2,1], those of the training set [2,2,1]"));
}

}  // namespace
}  // namespace cairn::data
