#include "kernels/window.h"

#include <gtest/gtest.h>

namespace cairn::kernels {
namespace {

// Expected values: tf.nn.max_pool's documentation of VALID and SAME.
TEST(MakeWindow, ValidDropsTheRest) {
  const Window window = MakeWindow(13, 6, 5, Padding::kValid);
  EXPECT_EQ(window.output, 2);
  EXPECT_EQ(window.pad_before + window.pad_after, 0);
}

TEST(MakeWindow, SamePadsEvenlyWithTheOddRowAfterTheImage) {
  const Window window = MakeWindow(13, 6, 5, Padding::kSame);
  EXPECT_EQ(window.output, 3);
  EXPECT_EQ(window.pad_before, 1);
  EXPECT_EQ(window.pad_after, 2);
}

TEST(MakeWindow, SameNeverPadsNegatively) {
  const Window window = MakeWindow(7, 1, 3, Padding::kSame);
  EXPECT_EQ(window.output, 3);
  EXPECT_EQ(window.pad_before, 0);
  EXPECT_EQ(window.pad_after, 0);
}

TEST(MakeWindow, ValidGivesNoOutputIfTheWindowDoesNotFit) {
  EXPECT_EQ(MakeWindow(2, 3, 1, Padding::kValid).output, 0);
}

TEST(OutputShape, ValidConvolutionShrinksTheImage) {
  const auto shape = OutputShape(Conv2DParams{
      .input = {.shape = {64, 28, 28, 1}}, .filters = 32, .kernel_height = 3, .kernel_width = 3});
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(*shape, (Shape{64, 26, 26, 32}));
}

TEST(OutputShape, ErrorsNameWhatDoesNotFit) {
  const auto too_small = OutputShape(Pool2DParams{.input = {.shape = {1, 1, 5, 2}}});
  EXPECT_EQ(too_small.status().message(), "a window of 2x2 does not fit an image of 1x5");
  const auto no_image = OutputShape(Pool2DParams{.input = {.shape = {64, 10}}});
  EXPECT_EQ(no_image.status().message(),
            "input [64,10] is not an image: expected [batch, height, width, channels]");
}

}  // namespace
}  // namespace cairn::kernels
