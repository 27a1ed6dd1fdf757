#include "data/image/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/data/data_files.h"
#include "tests/unit/data/image_files.h"

namespace cairn::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

absl::Span<const uint8_t> SpanOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::vector<uint8_t> PixelsOf(const std::string& image, const Shape& shape) {
  std::vector<uint8_t> pixels(static_cast<size_t>(shape.num_elements()));
  EXPECT_EQ(DecodeImage(SpanOf(image), shape, absl::MakeSpan(pixels)), absl::OkStatus());
  return pixels;
}

std::string RefusalOf(const std::string& image, const Shape& shape) {
  std::vector<uint8_t> pixels(static_cast<size_t>(shape.num_elements()));
  const absl::Status status = DecodeImage(SpanOf(image), shape, absl::MakeSpan(pixels));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(DecodeImage, APngDecodesToThePixelsWritten) {
  for (const bool interlaced : {false, true}) {
    EXPECT_THAT(
        PixelsOf(Png({.width = 3, .height = 2, .interlaced = interlaced, .rows = {0, 1, 2, 10, 128, 255}}),
                 {2, 3, 1}),
        ElementsAre(0, 1, 2, 10, 128, 255));
  }
  EXPECT_THAT(PixelsOf(Png({.width = 2, .color = PNG_COLOR_TYPE_RGB, .rows = {1, 2, 3, 4, 5, 6}}), {1, 2, 3}),
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(PixelsOf(Png({.color = PNG_COLOR_TYPE_RGB_ALPHA, .rows = {1, 2, 3, 4}}), {1, 1, 4}),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(PixelsOf(Png({.color = PNG_COLOR_TYPE_GRAY_ALPHA, .rows = {7, 9}}), {1, 1, 2}),
              ElementsAre(7, 9));
}

TEST(DecodeImage, GrayOfFewBitsIsSpreadOverTheBytes) {
  EXPECT_THAT(PixelsOf(Png({.width = 3, .depth = 1, .rows = {0b10100000}}), {1, 3, 1}),
              ElementsAre(255, 0, 255));
  EXPECT_THAT(PixelsOf(Png({.width = 2, .depth = 4, .rows = {0x5F}}), {1, 2, 1}), ElementsAre(85, 255));
}

TEST(DecodeImage, PalettesBecomeRgbWithoutTheirAlpha) {
  const PngImage image = {.width = 2,
                          .color = PNG_COLOR_TYPE_PALETTE,
                          .rows = {1, 0},
                          .palette = {{10, 20, 30}, {40, 50, 60}},
                          .alphas = {0, 128}};
  EXPECT_THAT(PixelsOf(Png(image), {1, 2, 3}), ElementsAre(40, 50, 60, 10, 20, 30));
}

TEST(DecodeImage, GrayBecomesRgbAndAlphaIsDroppedToFitTheModel) {
  EXPECT_THAT(PixelsOf(FlatPng(1, 1, 9), {1, 1, 3}), ElementsAre(9, 9, 9));
  EXPECT_THAT(PixelsOf(Png({.color = PNG_COLOR_TYPE_GRAY_ALPHA, .rows = {7, 0}}), {1, 1, 3}),
              ElementsAre(7, 7, 7));
  EXPECT_THAT(PixelsOf(Png({.color = PNG_COLOR_TYPE_GRAY_ALPHA, .rows = {7, 0}}), {1, 1, 1}), ElementsAre(7));
  EXPECT_THAT(PixelsOf(Png({.color = PNG_COLOR_TYPE_RGB_ALPHA, .rows = {1, 2, 3, 0}}), {1, 1, 3}),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(PixelsOf(Jpeg(8, 8, 1, std::vector<uint8_t>(64, 200)), {8, 8, 3}), Each(200));
}

TEST(DecodeImage, AJpegOfOneColorDecodesToIt) {
  EXPECT_THAT(PixelsOf(Jpeg(8, 16, 1, std::vector<uint8_t>(128, 77)), {16, 8, 1}), Each(77));
  EXPECT_THAT(PixelsOf(Jpeg(16, 8, 3, std::vector<uint8_t>(384, 140)), {8, 16, 3}), Each(140));
}

TEST(DecodeImage, UnsupportedImagesAreRefusedByName) {
  EXPECT_THAT(RefusalOf(Png({.depth = 16, .rows = {1, 2}}), {1, 1, 1}),
              HasSubstr("is a PNG with 16 bits per channel"));
  EXPECT_THAT(RefusalOf(Jpeg(1, 1, 4, {1, 2, 3, 4}), {1, 1, 3}), HasSubstr("is a CMYK JPEG"));
  EXPECT_THAT(RefusalOf("GIF89a..", {1, 1, 3}), HasSubstr("is a GIF; only PNG and JPEG are supported"));
  EXPECT_THAT(RefusalOf("RIFF....WEBPVP8 ", {1, 1, 3}),
              HasSubstr("is a WebP; only PNG and JPEG are supported"));
  EXPECT_THAT(RefusalOf("hello", {1, 1, 3}), HasSubstr("is neither PNG nor JPEG"));
  EXPECT_THAT(RefusalOf("", {1, 1, 3}), HasSubstr("is neither PNG nor JPEG"));
}

TEST(DecodeImage, AnImageOfAnotherShapeIsRefusedWithBothShapes) {
  EXPECT_THAT(RefusalOf(FlatPng(2, 3, 0), {2, 3, 1}),
              HasSubstr("is an image of the shape [3,2,1], not [2,3,1]"));
  EXPECT_THAT(RefusalOf(Png({.color = PNG_COLOR_TYPE_RGB, .rows = {1, 2, 3}}), {1, 1, 1}),
              HasSubstr("is an image of the shape [1,1,3], not [1,1,1]"));
}

// Nothing is allocated for the size in the header.
TEST(DecodeImage, AHugeImageInFewBytesIsRefusedByItsHeader) {
  std::string png = FlatPng(1, 1, 0);
  for (const size_t at : {16, 20}) png.replace(at, 4, Bytes({0, 0, 0xEA, 0x60}));
  EXPECT_THAT(RefusalOf(png, {1, 1, 1}), HasSubstr("[60000,60000,1], not [1,1,1]"));
  png.replace(16, 4, Bytes({0x7F, 0xFF, 0xFF, 0xFF}));
  EXPECT_THAT(RefusalOf(png, {1, 1, 1}), HasSubstr("more than 65535 a side"));
}

TEST(DecodeImage, TruncatedOrDamagedImagesAreRefused) {
  std::vector<uint8_t> noise(64 * 3);
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<uint8_t>(i * 97 + i * i);
  const std::string png = Png({.width = 8, .height = 8, .color = PNG_COLOR_TYPE_RGB, .rows = noise});
  const std::string jpeg = Jpeg(8, 8, 3, noise);
  for (const std::string& image : {png, jpeg}) {
    for (size_t size = 0; size < image.size(); ++size) {
      EXPECT_THAT(RefusalOf(image.substr(0, size), {8, 8, 3}), Not(HasSubstr("is an image of"))) << size;
    }
  }
  std::string damaged = png;
  damaged[60] = static_cast<char>(damaged[60] ^ 1);
  EXPECT_THAT(RefusalOf(damaged, {8, 8, 3}), HasSubstr("is a damaged PNG: "));
}

TEST(PixelShapeFor, IsTheModelsShapeIfItHasAxes) {
  const ImageHeader header = {.height = 2, .width = 3, .channels = 4};
  EXPECT_EQ(PixelShapeFor(header, {8, 8, 1}), Shape({8, 8, 1}));
  EXPECT_EQ(PixelShapeFor(header, {8, 8}), Shape({8, 8, 1}));
  EXPECT_EQ(PixelShapeFor(header, {784}), Shape({2, 3, 4}));
}

}  // namespace
}  // namespace cairn::data
