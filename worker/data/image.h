// PNG and JPEG images, from their bytes to pixels of uint8 [height, width, channels].
//
// Pixels are as tf.io.decode_png() and decode_jpeg() have them: gray of fewer bits is spread over 0 to 255,
// palettes become RGB, gamma and orientation are ignored. Refused by name: 16 bits per channel, CMYK, and
// images that are damaged or cut short. Stateless; any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"

namespace cairn::data {

enum class ImageFormat { kPng, kJpeg, kOther };

struct ImageHeader {
  ImageFormat format = ImageFormat::kOther;
  int64_t height = 0, width = 0;
  int64_t channels = 0;  // 1 gray, 2 gray and alpha, 3 RGB, 4 RGBA
};

// Detected from the first bytes: "PNG", "JPEG", or an unsupported image format ("GIF"); empty: no image.
absl::string_view ImageFormatOf(absl::Span<const uint8_t> bytes);

// Reads the header only. INVALID_ARGUMENT for data that is no such image, or an unsupported one.
absl::StatusOr<ImageHeader> ReadImageHeader(absl::Span<const uint8_t> bytes);

// The shape of the pixels for a model that takes `input`: `input` itself where it has three axes, with a
// channel where it has two; else the image's own.
Shape PixelShapeFor(const ImageHeader& header, const Shape& input);

// INVALID_ARGUMENT with both shapes unless the image has the height and the width of `shape` [height, width,
// channels], and its channels or convertible ones: alpha is dropped, gray becomes RGB.
absl::Status CheckFits(const ImageHeader& header, const Shape& shape);

// Writes the image's pixels to `pixels` [shape.num_elements()]. Memory grows with `shape`, never with what a
// header claims. INVALID_ARGUMENT as ReadImageHeader() and CheckFits(), and for damaged images.
absl::Status DecodeImage(absl::Span<const uint8_t> bytes, const Shape& shape, absl::Span<uint8_t> pixels);

}  // namespace cairn::data
