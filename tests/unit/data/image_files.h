// PNG and JPEG images in memory, made by libpng and libjpeg.
#pragma once

#include <cstdio>  // before jpeglib.h, which needs it
// clang-format off
#include <jpeglib.h>
// clang-format on
#include <png.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace cairn::data {

struct PngImage {
  uint32_t width = 1, height = 1;
  int color = PNG_COLOR_TYPE_GRAY;
  int depth = 8;
  bool interlaced = false;
  std::vector<uint8_t> rows{};       // packed as the file has them
  std::vector<png_color> palette{};  // for PNG_COLOR_TYPE_PALETTE
  std::vector<uint8_t> alphas{};     // of the palette
};

inline std::string Png(PngImage image) {
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  const auto append = [](png_structp writer, png_bytep data, size_t size) {
    static_cast<std::string*>(png_get_io_ptr(writer))->append(reinterpret_cast<const char*>(data), size);
  };
  png_set_write_fn(png, &bytes, append, nullptr);
  png_set_IHDR(png, info, image.width, image.height, image.depth, image.color,
               image.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (!image.palette.empty())
    png_set_PLTE(png, info, image.palette.data(), static_cast<int>(image.palette.size()));
  if (!image.alphas.empty()) {
    png_set_tRNS(png, info, image.alphas.data(), static_cast<int>(image.alphas.size()), nullptr);
  }
  png_write_info(png, info);
  std::vector<png_bytep> rows;
  for (uint32_t y = 0; y < image.height; ++y) {
    rows.push_back(image.rows.data() + y * (image.rows.size() / image.height));
  }
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

// `pixels` [height, width, components]: 1 gray, 3 RGB, 4 CMYK. Uses the best quality, which preserves a flat
// color exactly.
inline std::string Jpeg(uint32_t width, uint32_t height, int components, std::vector<uint8_t> pixels) {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's type
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_width = width;
  jpeg.image_height = height;
  jpeg.input_components = components;
  jpeg.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  for (uint32_t y = 0; y < height; ++y) {
    JSAMPROW row = pixels.data() + y * width * static_cast<uint32_t>(components);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string bytes(reinterpret_cast<const char*>(memory), size);
  jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return bytes;
}

// An 8-bit gray PNG in which all pixels have one value.
inline std::string FlatPng(uint32_t width, uint32_t height, uint8_t value) {
  return Png({.width = width, .height = height, .rows = std::vector<uint8_t>(size_t{width} * height, value)});
}

}  // namespace cairn::data
