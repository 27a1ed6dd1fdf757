#include "data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/data/data_files.h"
#include "tests/unit/data/examples.h"
#include "tests/unit/data/refusals.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two images of 2x2 and their labels.
const std::string kImages = IdxHeader(0x08, {2, 2, 2}) + Bytes({0, 51, 102, 255, 1, 2, 3, 4});
const std::string kLabels = IdxHeader(0x08, {2}) + Bytes({3, 1});

TEST(LoadTrainingData, ReadsFilesWithMnistsNamesWithAndWithoutGzip) {
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
  EXPECT_EQ(data->train->example_shape(), Shape({2, 2}));
  EXPECT_THAT(ReadExample(*data->validation, 1).target, ElementsAre(1));
}

TEST(LoadTrainingData, TheTargetsOfAnAutoencoderAreItsInputs) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", kLabels);
  DataOptions options = {.path = dir.path(),
                         .input_names = {"image"},
                         .input_shapes = {{2, 2, 1}},
                         .input_types = {DType::kFloat32},
                         .example_shape = {2, 2, 1},
                         .autoencoder = true};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->target_info().per_example, 4);
  EXPECT_EQ(data->train->target_info().shape, Shape({2, 2, 1}));
  EXPECT_EQ(data->train->num_classes(), 0);
  EXPECT_THAT(data->train->Target(0), IsEmpty());
  const Example example = ReadExample(*data->train, 0);
  EXPECT_THAT(example.inputs, ElementsAre(0, 0.2f, 0.4f, 1));
  EXPECT_EQ(example.target, example.inputs);
  // Weights of classes are those of the labels.
  options.class_weights = {{3, 2.5f}};
  EXPECT_EQ(ReadExample(*LoadTrainingData(options).value().train, 0).weight, 2.5f);
  options.augmentation = {.flip = true};
  EXPECT_THAT(LoadRefusal(options), HasSubstr("--autoencoder excludes --augment"));
  options.augmentation = {};
  options.input_types = {DType::kInt64};
  EXPECT_THAT(LoadRefusal(options), HasSubstr("--autoencoder needs a model with one input of numbers"));
}

TEST(LoadTrainingData, NamesUnreadFilesOfOtherFormats) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.csv", "a,label\n1,0\n2,1\n");
  EXPECT_THAT(LoadTrainingData({.path = dir.path()})->remarks, IsEmpty());
  WriteText(dir / "train.tsv", "a\tlabel\n1\t0\n");
  WriteText(dir / "train.tfrecord", "");
  WriteText(dir / "training.txt", "");
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 2);
  EXPECT_THAT(data->remarks, ElementsAre(EndsWith("not read: train.tfrecord, train.tsv")));
}

TEST(LoadTrainingData, NamesImageFoldersNextToFilesOfAnotherFormat) {
  const auto remarks_with = [](const std::vector<std::string>& folders) {
    const TemporaryDirectory dir;
    WriteText(dir / "train.csv", "a,label\n1,0\n2,1\n");
    for (const std::string& folder : folders) {
      std::filesystem::create_directories(dir / folder);
      WriteText(dir / (folder + "/1.png"), "");
    }
    return LoadTrainingData({.path = dir.path()})->remarks;
  };
  EXPECT_THAT(remarks_with({"train/cat"}), ElementsAre(EndsWith("not read: train/")));
  EXPECT_THAT(remarks_with({"cat", "dog"}), ElementsAre(EndsWith("not read: cat/, dog/")));
  EXPECT_THAT(remarks_with({"plots"}), IsEmpty());
}

TEST(LoadTrainingData, NamesAGzippedFileNextToAPlainOne) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", kLabels);
  EXPECT_THAT(LoadTrainingData({.path = dir.path()})->remarks, IsEmpty());
  WriteGzip(dir / "train-images-idx3-ubyte.gz", kImages);
  WriteGzip(dir / "train-labels.idx1-ubyte.gz", kLabels);
  EXPECT_THAT(LoadTrainingData({.path = dir.path()})->remarks,
              ElementsAre(EndsWith("not read: train-images-idx3-ubyte.gz, train-labels.idx1-ubyte.gz")));
}

TEST(LoadTrainingData, ByteImagesAreDividedBy255) {
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

TEST(LoadTrainingData, MissingFilesAreNamed) {
  const TemporaryDirectory dir;
  EXPECT_EQ(LoadRefusal({.path = dir / "nowhere"}), dir / "nowhere" + ": no such file or directory");
  EXPECT_EQ(LoadRefusal({}), "the data directory is not given");
  const auto status = LoadTrainingData({.path = dir.path()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("train-images-idx3-ubyte[.gz]"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("mnist.npz"));
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  EXPECT_THAT(LoadRefusal({.path = dir.path()}),
              HasSubstr("exists, but not " + dir / "train-labels-idx1-ubyte[.gz]"));
}

TEST(LoadTrainingData, ValidationTargetsMustHaveTheTrainingSetsKind) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", kLabels);
  WriteText(dir / "t10k-images-idx3-ubyte", kImages);
  WriteText(dir / "t10k-labels-idx1-ubyte", IdxHeader(0x08, {2, 3}) + "abcdef");
  EXPECT_THAT(
      LoadRefusal({.path = dir.path()}),
      HasSubstr(
          "t10k-labels-idx1-ubyte: targets are 3 numbers, but those of the training set are class indices"));
}

TEST(LoadTrainingData, NegativeIntegersMakeTargetsNumbersInBothSets) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", IdxHeader(0x09, {2}) + Bytes({1, 0xFF}));
  WriteText(dir / "t10k-images-idx3-ubyte", kImages);
  WriteText(dir / "t10k-labels-idx1-ubyte", kLabels);
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->num_classes(), 0);
  EXPECT_THAT(ReadExample(*data->train, 1).target, ElementsAre(-1));
  EXPECT_THAT(ReadExample(*data->validation, 0).target, ElementsAre(3));
}

TEST(LoadTrainingData, WholeFloatTargetsAreClassIndices) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", IdxHeader(0x0D, {2}) + Bytes({0x40, 0x40, 0, 0, 0, 0, 0, 0}));
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->num_classes(), 4);
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(3));
}

TEST(LoadTrainingData, OtherFloatTargetsAreNumbers) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", IdxHeader(0x0D, {2}) + Bytes({0x3F, 0xC0, 0, 0, 0xC0, 0, 0, 0}));
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->num_classes(), 0);
  EXPECT_EQ(data->train->num_targets(), 1);
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(1.5f));
  EXPECT_THAT(ReadExample(*data->train, 1).target, ElementsAre(-2.0f));
}

TEST(LoadTrainingData, SeveralIntegersAreNumbers) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", IdxHeader(0x08, {2, 3}) + Bytes({0, 1, 0, 1, 0, 1}));
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->num_classes(), 0);
  EXPECT_EQ(data->train->num_targets(), 3);
  EXPECT_THAT(ReadExample(*data->train, 1).target, ElementsAre(1, 0, 1));
  EXPECT_EQ(ReadExample(*data->train, 1).weight, 1);
}

TEST(LoadTrainingData, ClassWeightsApplyOnlyToTraining) {
  const TemporaryDirectory dir;
  for (const char* set : {"train", "t10k"}) {
    WriteText(dir / (std::string(set) + "-images-idx3-ubyte"), kImages);
    WriteText(dir / (std::string(set) + "-labels-idx1-ubyte"), kLabels);
  }
  const auto data = LoadTrainingData({.path = dir.path(), .class_weights = {{1, 2.5f}}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_TRUE(data->train->weighted());
  EXPECT_EQ(ReadExample(*data->train, 0).weight, 1);  // class 3
  EXPECT_EQ(ReadExample(*data->train, 1).weight, 2.5f);
  EXPECT_FALSE(data->validation->weighted());
}

TEST(LoadTrainingData, ClassWeightsMustSuitTheTargets) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", kLabels);
  EXPECT_THAT(LoadRefusal({.path = dir.path(), .class_weights = {{4, 0.5f}}}),
              HasSubstr("train-labels-idx1-ubyte: class 4 has the weight 0.5, but labels go up to 3"));
  WriteText(dir / "train-labels-idx1-ubyte", IdxHeader(0x0D, {2}) + std::string("\x3f\0\0\0\x40\x20\0\0", 8));
  EXPECT_THAT(LoadRefusal({.path = dir.path(), .class_weights = {{0, 1.0f}}}),
              HasSubstr("targets are numbers, neither class indices nor one-hot vectors"));
}

TEST(LoadTrainingData, ColumnOptionsAreRefusedForFormatsWithoutColumns) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", kLabels);
  EXPECT_THAT(LoadRefusal({.path = dir.path(), .label_column = "y"}),
              HasSubstr("a label column applies to CSV, TFRecord, Criteo and libsvm files"));
  EXPECT_THAT(LoadRefusal({.path = dir.path(), .max_bad_rows = 1}),
              HasSubstr("a number of bad rows applies to CSV"));
}

TEST(LoadTrainingData, AugmentationAppliesOnlyToTrainingImages) {
  const TemporaryDirectory dir;
  for (const char* set : {"train", "t10k"}) {
    WriteText(dir / (std::string(set) + "-images-idx3-ubyte"), kImages);
    WriteText(dir / (std::string(set) + "-labels-idx1-ubyte"), kLabels);
  }
  const auto data = LoadTrainingData({.path = dir.path(), .augmentation = {.flip = true}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_TRUE(data->train->augmentation().flip);
  EXPECT_TRUE(data->validation->augmentation().empty());
  EXPECT_THAT(
      LoadRefusal({.path = dir.path(), .augmentation = {.crop = 2}}),
      HasSubstr("train-images-idx3-ubyte: images of the shape [2,2,1] are too small to crop by 2 pixels"));
  WriteText(dir / "train-images-idx3-ubyte", IdxHeader(0x08, {2, 4}) + "abcdefgh");
  EXPECT_THAT(LoadRefusal({.path = dir.path(), .augmentation = {.flip = true}}),
              HasSubstr("examples of the shape [4] are not images"));
}

// A model that takes images gives their shape to rows with as many numbers.
TEST(LoadTrainingData, FlatExamplesGetTheModelsInputShape) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", IdxHeader(0x08, {2, 4}) + "abcdefgh");
  WriteText(dir / "train-labels-idx1-ubyte", kLabels);
  const auto shape_for = [&](const Shape& wanted) {
    return LoadTrainingData({.path = dir.path(), .example_shape = wanted})->train->example_shape();
  };
  EXPECT_EQ(shape_for({2, 2, 1}), Shape({2, 2, 1}));
  EXPECT_EQ(shape_for({5}), Shape({4}));
  EXPECT_EQ(shape_for({}), Shape({4}));
}

TEST(LoadTrainingData, ValidationExamplesMustHaveTheTrainingShape) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-images-idx3-ubyte", kImages);
  WriteText(dir / "train-labels-idx1-ubyte", kLabels);
  WriteText(dir / "t10k-images-idx3-ubyte", IdxHeader(0x08, {2, 1, 2}) + "abcd");
  WriteText(dir / "t10k-labels-idx1-ubyte", kLabels);
  EXPECT_THAT(
      LoadRefusal({.path = dir.path()}),
      HasSubstr(
          "t10k-images-idx3-ubyte: examples have the shape [1,2], but those of the training set [2,2]"));
}

}  // namespace
}  // namespace cairn::data
