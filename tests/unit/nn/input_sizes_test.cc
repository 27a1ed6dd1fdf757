#include "nn/input_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/model.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string Images() {
  return SequentialOf(
      R"({"class_name": "InputLayer", "config": {"name": "image", "batch_shape": [null, null, null, 3]}},
                         {"class_name": "GlobalAveragePooling2D"})");
}

std::string SizeFault(const InputSizes& sizes) {
  return std::string(Model::FromJson(Images(), "m", sizes).status().message());
}

TEST(ParseInputSizes, OneShapeOrOneForEachName) {
  EXPECT_THAT(*ParseInputSizes("224,224,3"), ElementsAre(Pair("", ElementsAre(224, 224, 3))));
  EXPECT_THAT(*ParseInputSizes("image:8,9,3,mask:8"),
              ElementsAre(Pair("image", ElementsAre(8, 9, 3)), Pair("mask", ElementsAre(8))));
  for (const char* wrong : {"", "8,0,3", "8,x", "a:8,a:9", ":8", "8,a:9", "8,,3"})
    EXPECT_FALSE(ParseInputSizes(wrong).ok()) << wrong;
}

TEST(InputSizes, FixWhatTheFileLeavesOpen) {
  const auto model = Model::FromJson(Images(), "m", {.given = {{"", {8, 9, 3}}}});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->input_shape(), (Shape{8, 9, 3}));
  // The model of a checkpoint is fixed.
  EXPECT_EQ(Model::FromJson(model->canonical_json(), "again")->input_shape(), (Shape{8, 9, 3}));
  EXPECT_EQ(Model::FromJson(Images(), "m", {.given = {{"image", {4, 4, 3}}}})->input_shape(),
            (Shape{4, 4, 3}));
}

TEST(InputSizes, AreThoseOfTheDataIfNotGiven) {
  const auto in_data = [] { return absl::StatusOr<Shape>(Shape{6, 7, 3}); };
  EXPECT_EQ(Model::FromJson(Images(), "m", {.in_data = in_data})->input_shape(), (Shape{6, 7, 3}));
  EXPECT_EQ(Model::FromJson(Images(), "m", {.given = {{"", {8, 9, 3}}}, .in_data = in_data})->input_shape(),
            (Shape{8, 9, 3}));
  EXPECT_THAT(
      SizeFault({.in_data = [] { return absl::StatusOr<Shape>(absl::NotFoundError("no files")); }}),
      HasSubstr(
          "input 'image' is of any size, which --input_shape can fix, and the data does not: no files"));
  EXPECT_THAT(
      SizeFault({.in_data = [] { return absl::StatusOr<Shape>(Shape{6, 7}); }}),
      HasSubstr("--data_dir: examples of shape [6,7,1] do not fit input 'image', which is [null,null,3]"));
}

TEST(InputSizes, FaultsNameTheFlag) {
  EXPECT_THAT(SizeFault({}),
              HasSubstr("batch_shape: [null,null,null,3]: the size of axis 1 is not fixed: give the shape "
                        "of an example with --input_shape, such as --input_shape 224,224,3"));
  EXPECT_THAT(
      SizeFault({.given = {{"", {8, 8, 1}}}}),
      HasSubstr("--input_shape: examples of shape [8,8,1] do not fit input 'image', which is [null,null,3]"));
  EXPECT_THAT(SizeFault({.given = {{"mask", {8, 8, 1}}}}),
              HasSubstr("--input_shape: no input 'mask': the model has image"));
}

TEST(InputSizes, AreReadWhereverASequentialHasThem) {
  for (const char* field : {"batch_shape", "batch_input_shape", "input_shape"}) {
    const bool batch = field[0] == 'b';
    const std::string json = absl::StrCat(R"({"config": {"build_input_shape": [null, null, 5], "layers": [
        {"class_name": "Dense", "config": {"units": 2, ")",
                                          field, R"(": [)", batch ? "null, " : "", "null, 5]}}]}}");
    const auto model = Model::FromJson(json, "m", {.given = {{"", {4, 5}}}});
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->input_shape(), (Shape{4, 5})) << field;
  }
}

}  // namespace
}  // namespace cairn::nn
