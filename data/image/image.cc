#include "data/image/image.h"

#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>

// libjpeg's headers need <cstdio> first, and this order.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::data {
namespace {

using Bytes = absl::Span<const uint8_t>;

constexpr absl::string_view kPngSignature("\x89PNG\r\n\x1A\n", 8);

absl::Status Malformed(absl::string_view format, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("is a damaged ", format, ": ", what));
}

int64_t BigEndian(Bytes bytes) {
  int64_t value = 0;
  for (const uint8_t byte : bytes) value = value << 8 | byte;
  return value;
}

// IHDR is the first chunk: length, "IHDR", width, height, bit depth, color type.
absl::StatusOr<ImageHeader> ReadPngHeader(Bytes bytes) {
  constexpr size_t kHeaderBytes = 8 + 8 + 13;
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data() + 12, "IHDR", 4) != 0) {
    return Malformed("PNG", "its header is missing");
  }
  ImageHeader header = {.format = ImageFormat::kPng,
                        .height = BigEndian(bytes.subspan(20, 4)),
                        .width = BigEndian(bytes.subspan(16, 4))};
  constexpr int64_t kMaxSide = 65535;  // JPEG's limit
  if (header.height > kMaxSide || header.width > kMaxSide) {
    return absl::InvalidArgumentError(absl::StrCat("is a PNG of ", header.width, "x", header.height,
                                                   " pixels, more than ", kMaxSide, " a side"));
  }
  const int depth = bytes[24], color = bytes[25];
  if (depth == 16) {
    return absl::InvalidArgumentError("is a PNG with 16 bits per channel; only 8 bits are supported");
  }
  switch (color) {
    case PNG_COLOR_TYPE_GRAY:
      header.channels = 1;
      break;
    case PNG_COLOR_TYPE_GRAY_ALPHA:
      header.channels = 2;
      break;
    case PNG_COLOR_TYPE_RGB:
    case PNG_COLOR_TYPE_PALETTE:
      header.channels = 3;
      break;
    case PNG_COLOR_TYPE_RGB_ALPHA:
      header.channels = 4;
      break;
    default:
      return Malformed("PNG", absl::StrCat("unknown color type ", color));
  }
  return header;
}

// Finds the first frame header (SOF) among the markers (ITU-T T.81, annex B).
absl::StatusOr<ImageHeader> ReadJpegHeader(Bytes bytes) {
  const auto cut_short = [] { return Malformed("JPEG", "it ends before its frame header"); };
  for (Bytes rest = bytes.subspan(2);;) {
    while (!rest.empty() && rest[0] != 0xFF) rest.remove_prefix(1);
    while (!rest.empty() && rest[0] == 0xFF) rest.remove_prefix(1);
    if (rest.empty()) return cut_short();
    const int marker = rest[0];
    rest.remove_prefix(1);
    const bool alone = marker == 0x00 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8);
    if (alone) continue;
    if (rest.size() < 2) return cut_short();
    const auto length = static_cast<size_t>(BigEndian(rest.subspan(0, 2)));
    if (marker == 0xD9 || marker == 0xDA || length < 2 || length > rest.size()) return cut_short();
    const bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    if (!frame) {
      rest.remove_prefix(length);
      continue;
    }
    if (length < 8) return cut_short();
    const int precision = rest[2], components = rest[7];
    if (precision != 8) {
      return absl::InvalidArgumentError(
          absl::StrCat("is a JPEG of ", precision, " bits per channel; only 8 bits are supported"));
    }
    if (components == 4) return absl::InvalidArgumentError("is a CMYK JPEG; only gray and RGB are supported");
    if (components != 1 && components != 3) {
      return Malformed("JPEG", absl::StrCat("it has ", components, " components"));
    }
    return ImageHeader{.format = ImageFormat::kJpeg,
                       .height = BigEndian(rest.subspan(3, 2)),
                       .width = BigEndian(rest.subspan(5, 2)),
                       .channels = components};
  }
}

// The input and output of a decoder: plain data, since longjmp() runs no destructors.
struct Decoding {
  const uint8_t* next;
  size_t left;
  int64_t height, width, channels;
  uint8_t* pixels;                // [height, width, channels]
  std::array<char, 200> error{};  // the reason of a failure
  std::jmp_buf failed{};
};

[[noreturn]] void FailPng(png_structp png, png_const_charp message) {
  auto* decoding = static_cast<Decoding*>(png_get_error_ptr(png));
  std::snprintf(decoding->error.data(), decoding->error.size(), "%s", message);
  std::longjmp(decoding->failed, 1);
}

void IgnorePngWarning(png_structp, png_const_charp) {}

void ReadPngBytes(png_structp png, png_bytep to, size_t count) {
  auto* decoding = static_cast<Decoding*>(png_get_io_ptr(png));
  if (count > decoding->left) png_error(png, "it is cut short");
  std::memcpy(to, decoding->next, count);
  decoding->next += count;
  decoding->left -= count;
}

// Decodes a PNG whose header has been checked. Returns false if this fails, with the reason in
// decoding.error.
bool RunPng(Decoding& decoding) {
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoding, FailPng, IgnorePngWarning);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  if (info == nullptr) {
    png_destroy_read_struct(&png, nullptr, nullptr);
    std::snprintf(decoding.error.data(), decoding.error.size(), "libpng has no memory");
    return false;
  }
  if (setjmp(decoding.failed) != 0) {
    png_destroy_read_struct(&png, &info, nullptr);
    return false;
  }
  png_set_read_fn(png, &decoding, ReadPngBytes);
  png_set_user_limits(png, static_cast<png_uint_32>(decoding.width),
                      static_cast<png_uint_32>(decoding.height));
  png_read_info(png, info);
  const bool gray = (png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR) == 0;
  if (png_get_color_type(png, info) == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (gray && png_get_bit_depth(png, info) < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (decoding.channels % 2 == 1) png_set_strip_alpha(png);
  if (decoding.channels == 3 && gray) png_set_gray_to_rgb(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const auto stride = static_cast<size_t>(decoding.width * decoding.channels);
  if (png_get_rowbytes(png, info) != stride) png_error(png, "its rows do not have the size in its header");
  for (int pass = 0; pass < passes; ++pass) {
    for (int64_t y = 0; y < decoding.height; ++y) {
      png_read_row(png, decoding.pixels + static_cast<size_t>(y) * stride, nullptr);
    }
  }
  png_read_end(png, nullptr);
  png_destroy_read_struct(&png, &info, nullptr);
  return true;
}

[[noreturn]] void FailJpeg(j_common_ptr jpeg) {
  auto* decoding = static_cast<Decoding*>(jpeg->client_data);
  std::array<char, JMSG_LENGTH_MAX> message{};
  jpeg->err->format_message(jpeg, message.data());
  std::snprintf(decoding->error.data(), decoding->error.size(), "%s", message.data());
  std::longjmp(decoding->failed, 1);
}

// A warning of libjpeg means that it fills in missing data, so the image is damaged. Extraneous bytes between
// markers are harmless.
void JudgeJpegMessage(j_common_ptr jpeg, int level) {
  if (level < 0 && jpeg->err->msg_code != JWRN_EXTRANEOUS_DATA) FailJpeg(jpeg);
}

// Decodes a JPEG, like RunPng().
bool RunJpeg(Decoding& decoding) {
  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  errors.error_exit = FailJpeg;
  errors.emit_message = JudgeJpegMessage;
  jpeg.client_data = &decoding;
  if (setjmp(decoding.failed) != 0) {
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, decoding.next,
               static_cast<unsigned long>(decoding.left));  // NOLINT(google-runtime-int)
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = decoding.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  if (jpeg.image_width != decoding.width || jpeg.image_height != decoding.height) {
    ERREXIT(&jpeg, JERR_IMAGE_TOO_BIG);
  }
  jpeg_start_decompress(&jpeg);
  const auto stride = static_cast<size_t>(decoding.width * decoding.channels);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = decoding.pixels + jpeg.output_scanline * stride;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
  return true;
}

}  // namespace

absl::string_view ImageFormatOf(Bytes bytes) {
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (absl::StartsWith(text, kPngSignature)) return "PNG";
  if (absl::StartsWith(text, "\xFF\xD8\xFF")) return "JPEG";
  if (absl::StartsWith(text, "GIF87a") || absl::StartsWith(text, "GIF89a")) return "GIF";
  if (absl::StartsWith(text, "RIFF") && text.size() >= 12 && text.substr(8, 4) == "WEBP") return "WebP";
  if (absl::StartsWith(text, "BM") && text.size() >= 26 && BigEndian(bytes.subspan(6, 4)) == 0) return "BMP";
  return "";
}

absl::StatusOr<ImageHeader> ReadImageHeader(Bytes bytes) {
  const absl::string_view format = ImageFormatOf(bytes);
  if (format == "PNG") return ReadPngHeader(bytes);
  if (format == "JPEG") return ReadJpegHeader(bytes);
  if (format.empty()) return absl::InvalidArgumentError("is neither PNG nor JPEG");
  return absl::InvalidArgumentError(absl::StrCat("is a ", format, "; only PNG and JPEG are supported"));
}

Shape PixelShapeFor(const ImageHeader& header, const Shape& input) {
  if (input.rank() == 3) return input;
  if (input.rank() == 2) return {input[0], input[1], 1};
  return {header.height, header.width, header.channels};
}

absl::Status CheckFits(const ImageHeader& header, const Shape& shape) {
  const int64_t wanted = shape[2];
  const bool channels = header.channels == wanted || (wanted == 3 && header.channels != 3) ||
                        (wanted == 1 && header.channels == 2);
  if (header.height == shape[0] && header.width == shape[1] && header.height > 0 && header.width > 0 &&
      channels) {
    return absl::OkStatus();
  }
  const Shape own = {header.height, header.width, header.channels};
  return absl::InvalidArgumentError(
      absl::StrCat("is an image of the shape ", own.ToString(), ", not ", shape.ToString()));
}

absl::Status DecodeImage(Bytes bytes, const Shape& shape, absl::Span<uint8_t> pixels) {
  CAIRN_ASSIGN_OR_RETURN(const ImageHeader header, ReadImageHeader(bytes));
  CAIRN_RETURN_IF_ERROR(CheckFits(header, shape));
  CAIRN_CHECK(static_cast<int64_t>(pixels.size()) == shape.num_elements());
  Decoding decoding = {.next = bytes.data(),
                       .left = bytes.size(),
                       .height = shape[0],
                       .width = shape[1],
                       .channels = shape[2],
                       .pixels = pixels.data()};
  const bool png = header.format == ImageFormat::kPng;
  if (png ? RunPng(decoding) : RunJpeg(decoding)) return absl::OkStatus();
  return Malformed(png ? "PNG" : "JPEG", decoding.error.data());
}

}  // namespace cairn::data
