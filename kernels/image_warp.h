// Random transformations of images, written once: every backend compiles this file. An output pixel takes the value
// at a place between the pixels of the input, which is an affine map of its own place.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "common/core/host_device.h"
#include "common/core/random.h"
#include "kernels/ops.h"

namespace cairn::kernels {

// The place in the input: row = rows[0] h + rows[1] w + rows[2]; the column has the factors `columns`.
struct AffineMap {
  float rows[3], columns[3];

  CAIRN_HOST_DEVICE float Row(int64_t h, int64_t w) const {
    return rows[0] * static_cast<float>(h) + rows[1] * static_cast<float>(w) + rows[2];
  }
  CAIRN_HOST_DEVICE float Column(int64_t h, int64_t w) const {
    return columns[0] * static_cast<float>(h) + columns[1] * static_cast<float>(w) + columns[2];
  }
};

// The pixel that has the value of index `i` of an axis, which may be outside; -1 for kConstant outside.
CAIRN_HOST_DEVICE inline int64_t FoldIndex(int64_t i, int64_t extent, FillMode fill) {
  if (i >= 0 && i < extent) return i;
  switch (fill) {
    case FillMode::kConstant:
      return -1;
    case FillMode::kNearest:
      return i < 0 ? 0 : extent - 1;
    case FillMode::kWrap: {
      const int64_t rest = i % extent;
      return rest < 0 ? rest + extent : rest;
    }
    case FillMode::kReflect: {  // ... b a | a b c | c b ...
      const int64_t period = 2 * extent, rest = (i % period + period) % period;
      return rest < extent ? rest : period - 1 - rest;
    }
  }
  return -1;
}

// Draws the maps of examples, and samples images.
struct WarpFormula {
  ImageWarpParams::Range rotation, row_zoom, column_zoom, row_shift, column_shift;
  bool flips_rows, flips_columns, keeps_proportions, bilinear;
  FillMode fill;
  float fill_value;
  int64_t height, width, channels;

  explicit WarpFormula(const ImageWarpParams& params)
      : rotation(params.rotation),
        row_zoom(params.row_zoom),
        column_zoom(params.column_zoom),
        row_shift(params.row_shift),
        column_shift(params.column_shift),
        flips_rows(params.flips_rows),
        flips_columns(params.flips_columns),
        keeps_proportions(params.keeps_proportions),
        bilinear(params.interpolation == Interpolation::kBilinear),
        fill(params.fill),
        fill_value(params.fill_value),
        height(params.input.shape[1]),
        width(params.input.shape[2]),
        channels(params.input.shape[3]) {}

  // `example`: its place in the worker's batch. An example has two blocks of random words.
  CAIRN_HOST_DEVICE AffineMap MapOf(uint64_t example, uint64_t seed) const {
    const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    const auto words_of = [&](uint64_t counter) {
      return Philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, key);
    };
    const std::array<uint32_t, 4> words = words_of(2 * example), more = words_of(2 * example + 1);
    const float angle = Between(rotation, words[2]), zoom = Between(row_zoom, words[3]);
    const float down = (flips_rows && words[0] < kHalf ? -1.0f : 1.0f) * (1 + zoom);
    const float across = (flips_columns && words[1] < kHalf ? -1.0f : 1.0f) *
                         (1 + (keeps_proportions ? zoom : Between(column_zoom, more[0])));
    const float cosine = std::cos(angle), sine = std::sin(angle);
    const float middle = static_cast<float>(height - 1) / 2, center = static_cast<float>(width - 1) / 2;
    AffineMap map = {{down * cosine, down * sine, 0}, {-across * sine, across * cosine, 0}};
    map.rows[2] = middle - map.rows[0] * middle - map.rows[1] * center -
                  Between(row_shift, more[1]) * static_cast<float>(height);
    map.columns[2] = center - map.columns[0] * middle - map.columns[1] * center -
                     Between(column_shift, more[2]) * static_cast<float>(width);
    return map;
  }

  // The value of channel c at a place of the image; load(index) returns an element of it.
  template <typename Load>
  CAIRN_HOST_DEVICE float Sample(float row, float column, int64_t c, const Load& load) const {
    const auto at = [&](int64_t h, int64_t w) {
      const int64_t own_h = FoldIndex(h, height, fill), own_w = FoldIndex(w, width, fill);
      return own_h < 0 || own_w < 0 ? fill_value : load((own_h * width + own_w) * channels + c);
    };
    if (!bilinear) return at(static_cast<int64_t>(std::round(row)), static_cast<int64_t>(std::round(column)));
    const float top = std::floor(row), left = std::floor(column);
    const float below = row - top, right = column - left;
    const auto h = static_cast<int64_t>(top), w = static_cast<int64_t>(left);
    // A tap without weight is not read, so that a place on a pixel has its value.
    float sum = (1 - below) * ((1 - right) * at(h, w) + (right > 0 ? right * at(h, w + 1) : 0));
    if (below > 0) sum += below * ((1 - right) * at(h + 1, w) + (right > 0 ? right * at(h + 1, w + 1) : 0));
    return sum;
  }

 private:
  static constexpr uint32_t kHalf = 0x80000000u;
  CAIRN_HOST_DEVICE static float Between(const ImageWarpParams::Range& range, uint32_t word) {
    return range.low + (range.high - range.low) * (static_cast<float>(word >> 8) * 0x1p-24f);
  }
};

// INVALID_ARGUMENT unless the input is row-major images.
absl::Status CheckImageWarp(const ImageWarpParams& params);

}  // namespace cairn::kernels
