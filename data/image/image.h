// Decodes PNG and JPEG images to pixels of uint8 [height, width, channels].
//
// The pixels equal those of tf.io.decode_png() and decode_jpeg(): gray values of fewer bits are scaled to 0
// to 255, palettes become RGB, gamma and orientation are ignored. 16 bits per channel, CMYK, and damaged or
// truncated images are refused with a specific message. Stateless; any thread.
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

// The format detected from the first bytes: "PNG", "JPEG", or an unsupported image format ("GIF"); empty if
// the bytes are not an image.
absl::string_view ImageFormatOf(absl::Span<const uint8_t> bytes);

// Reads only the header. INVALID_ARGUMENT if the bytes are not a PNG or JPEG image, or if the image is of an
// unsupported kind.
absl::StatusOr<ImageHeader> ReadImageHeader(absl::Span<const uint8_t> bytes);

// The shape of the pixels for a model that takes `input`: `input` itself if it has three axes, `input` with a
// channel axis if it has two, otherwise the image's own shape.
Shape PixelShapeFor(const ImageHeader& header, const Shape& input);

// INVALID_ARGUMENT with both shapes unless the image has the height and the width of `shape` [height, width,
// channels], and the same or convertible channels: alpha is dropped, gray becomes RGB.
absl::Status CheckFits(const ImageHeader& header, const Shape& shape);

// Writes the image's pixels to `pixels` [shape.num_elements()]. Memory depends on `shape`, never on the size
// in a header. INVALID_ARGUMENT as for ReadImageHeader() and CheckFits(), and for damaged images.
absl::Status DecodeImage(absl::Span<const uint8_t> bytes, const Shape& shape, absl::Span<uint8_t> pixels);

}  // namespace cairn::data
