#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "data/dataset.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/examples.h"
#include "tests/unit/data/image_files.h"

namespace cairn::data {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::Field;
using ::testing::HasSubstr;

class ImageDirectory : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& contents) {
    std::filesystem::create_directories(std::filesystem::path(dir_ / name).parent_path());
    WriteText(dir_ / name, contents);
  }
  absl::StatusOr<TrainingData> Load() const {
    return LoadTrainingData({.path = dir_.path(), .example_shape = {2, 2, 1}});
  }
  std::string Refusal() const { return std::string(Load().status().message()); }

  const TemporaryDirectory dir_;
};

TEST_F(ImageDirectory, FoldersInSortedOrderAreTheClasses) {
  Write("dog/b.png", FlatPng(2, 2, 51));
  Write("dog/a.PNG", FlatPng(2, 2, 102));
  Write("cat/deeper/c.png", FlatPng(2, 2, 255));
  Write("cat/notes.txt", "no image");
  Write("cat/.hidden.png", "no image either");
  const auto data = Load();
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->train->size(), 3);
  EXPECT_EQ(data->train->example_shape(), Shape({2, 2, 1}));
  EXPECT_EQ(data->train->num_classes(), 2);
  EXPECT_THAT(data->class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(data->notes,
              ElementsAre(Field(&Note::text, HasSubstr(": 3 images, 2 classes: 0 'cat', 1 'dog'"))));
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, Each(1.0f));
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(0));
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, Each(102 / 255.0f));
  EXPECT_THAT(ReadExample(*data->train, 2).target, ElementsAre(1));
  EXPECT_EQ(data->validation, nullptr);
}

TEST_F(ImageDirectory, TrainAndValidationAreFoldersAboveTheClasses) {
  Write("train/a/0.png", FlatPng(2, 2, 0));
  Write("train/b/0.jpg", Jpeg(2, 2, 1, {9, 9, 9, 9}));
  Write("val/b/0.png", FlatPng(2, 2, 0));
  const auto data = Load();
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 2);
  ASSERT_NE(data->validation, nullptr);
  EXPECT_THAT(ReadExample(*data->validation, 0).target, ElementsAre(1));
  Write("val/c/0.png", FlatPng(2, 2, 0));
  EXPECT_THAT(Refusal(), HasSubstr("val: the folder 'c' is not one of the 2 classes: 0 'a', 1 'b'"));
}

TEST_F(ImageDirectory, TheFirstValidationFolderIsUsedAndOthersAreNamed) {
  Write("train/a/0.png", FlatPng(2, 2, 0));
  Write("train/stray.png", FlatPng(2, 2, 0));
  Write("test/a/0.png", FlatPng(2, 2, 0));
  Write("valid/a/0.png", FlatPng(2, 2, 255));
  Write("valid/stray.jpg", "");
  Write("README.txt", "no image");
  const auto data = Load();
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_NE(data->validation, nullptr);
  EXPECT_THAT(ReadExample(*data->validation, 0).inputs, Each(1.0f)) << "valid";
  EXPECT_THAT(data->remarks,
              ElementsAre(EndsWith("/train: not part of the training or validation set, and not "
                                   "read: stray.png"),
                          EndsWith("/valid: not part of the training or validation set, and not "
                                   "read: stray.jpg"),
                          EndsWith("not read: test/")));
}

TEST_F(ImageDirectory, AValidationFolderNextToClassesIsRefused) {
  Write("a/0.png", FlatPng(2, 2, 0));
  Write("test/a/0.png", FlatPng(2, 2, 0));
  EXPECT_THAT(Refusal(), HasSubstr("has the folder 'test' but no folder 'train'"));
}

TEST_F(ImageDirectory, AnImageThatDoesNotFitIsNamedWithBothShapes) {
  Write("a/0.png", FlatPng(2, 2, 0));
  Write("a/1.png", FlatPng(3, 2, 0));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("a/1.png: "), HasSubstr("[2,3,1], not [2,2,1]")));
}

TEST_F(ImageDirectory, UnsupportedImagesAreRefusedInsteadOfIgnored) {
  Write("a/0.png", FlatPng(2, 2, 0));
  Write("a/1.gif", "GIF89a...");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("a/1.gif: "), HasSubstr("is a GIF")));
  Write("a/1.gif", "");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("a/1.gif: "), HasSubstr("is neither PNG nor JPEG")));
}

TEST_F(ImageDirectory, AFifoIsRefusedWithoutBlocking) {
  Write("a/0.png", FlatPng(2, 2, 0));
  ASSERT_EQ(mkfifo((dir_ / "a/1.png").c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), HasSubstr("a/1.png: is not a regular file"));
}

TEST_F(ImageDirectory, DamagedPixelsAreReportedWithTheFileWhenRead) {
  Write("a/0.png", FlatPng(2, 2, 0));
  Write("a/1.png", FlatPng(2, 2, 0).substr(0, 45));
  const auto data = Load();
  ASSERT_TRUE(data.ok()) << data.status();
  ReadExample(*data->train, 0);
  EXPECT_EQ(data->train->status(), absl::OkStatus());
  ReadExample(*data->train, 1);
  EXPECT_THAT(std::string(data->train->status().message()),
              AllOf(HasSubstr("a/1.png: "), HasSubstr("damaged PNG")));
}

TEST_F(ImageDirectory, APixelThatTheInputCannotHoldIsNamedWithTheFile) {
  Write("a/0.png", FlatPng(2, 2, 51));
  const auto data = LoadTrainingData({.path = dir_.path(),
                                      .input_names = {"mask"},
                                      .input_shapes = {{2, 2, 1}},
                                      .input_types = {DType::kBool},
                                      .example_shape = {2, 2, 1}});
  ASSERT_TRUE(data.ok()) << data.status();
  ReadIds(*data->train, 0);
  EXPECT_THAT(std::string(data->train->status().message()), AllOf(HasSubstr("a/0.png"), HasSubstr("51")));
}

TEST_F(ImageDirectory, PredictionImagesNeedNoClasses) {
  Write("b.png", FlatPng(2, 2, 255));
  Write("a.png", FlatPng(2, 2, 0));
  const auto flat = LoadExamples({.path = dir_.path(), .example_shape = {2, 2, 1}, .labels_optional = true});
  ASSERT_TRUE(flat.ok()) << flat.status();
  ASSERT_TRUE(flat->has_value());
  EXPECT_FALSE((*flat)->targets.has_value());
  std::vector<float> row(4);
  (*flat)->inputs->Read(1, {MutableTensorView::OfFloats((*flat)->inputs->row_shape(), absl::MakeSpan(row))});
  EXPECT_THAT(row, Each(1.0f));
}

}  // namespace
}  // namespace cairn::data
