#include "data/augment.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/core/random.h"
#include "common/core/status.h"

namespace cairn::data {
namespace {

struct Extents {
  int64_t height, width, channels;
};

void Flip(const Extents& extents, float* image) {
  const int64_t channels = extents.channels;
  for (int64_t row = 0; row < extents.height; ++row) {
    float* left = image + row * extents.width * channels;
    float* right = left + (extents.width - 1) * channels;
    for (; left < right; left += channels, right -= channels) std::swap_ranges(left, left + channels, right);
  }
}

// Moves the image by `down` and `right` pixels; negative values move it up and left. The vacated pixels
// become 0.
void Move(const Extents& extents, int64_t down, int64_t right, float* image) {
  const int64_t row_floats = extents.width * extents.channels;
  const int64_t kept_rows = std::max<int64_t>(0, extents.height - std::abs(down));
  const int64_t shift = std::min(row_floats, std::abs(right) * extents.channels);
  // Rows are visited in an order in which no row is overwritten before it is read.
  for (int64_t i = 0; i < extents.height; ++i) {
    const int64_t row = down > 0 ? extents.height - 1 - i : i;
    float* to = image + row * row_floats;
    if (i >= kept_rows) {
      std::fill_n(to, row_floats, 0.0f);
      continue;
    }
    const float* from = image + (row - down) * row_floats;
    if (right >= 0) {
      std::memmove(to + shift, from, static_cast<size_t>(row_floats - shift) * sizeof(float));
      std::fill_n(to, shift, 0.0f);
    } else {
      std::memmove(to, from + shift, static_cast<size_t>(row_floats - shift) * sizeof(float));
      std::fill_n(to + row_floats - shift, shift, 0.0f);
    }
  }
}

// An integer from -reach to reach.
int64_t Draw(Random& random, int64_t reach) {
  return static_cast<int64_t>(random.NextBelow(static_cast<uint32_t>(2 * reach + 1))) - reach;
}

}  // namespace

absl::StatusOr<Augmentation> ParseAugmentation(absl::string_view text) {
  constexpr int64_t kMaxPixels = 1 << 20;
  Augmentation result;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    absl::string_view value = part;
    if (part == "flip") {
      result.flip = true;
    } else if (absl::ConsumePrefix(&value, "crop:")) {
      if (!absl::SimpleAtoi(value, &result.crop) || result.crop < 1 || result.crop > kMaxPixels) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", part, "': PIXELS must be an integer of at least 1"));
      }
    } else if (absl::ConsumePrefix(&value, "shift:")) {
      if (!absl::SimpleAtof(value, &result.shift) || !(result.shift > 0 && result.shift < 1)) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", part, "': FRACTION must be a number between 0 and 1"));
      }
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "' is not one of flip, crop:PIXELS, shift:FRACTION"));
    }
  }
  return result;
}

absl::Status Validate(const Augmentation& augmentation, const Shape& shape) {
  if (augmentation.empty()) return absl::OkStatus();
  if (shape.rank() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("examples of the shape ", shape.ToString(),
                     " are not images [height,width,channels] and cannot be augmented"));
  }
  if (augmentation.crop >= std::min(shape[0], shape[1])) {
    return absl::InvalidArgumentError(absl::StrCat("images of the shape ", shape.ToString(),
                                                   " are too small to crop by ", augmentation.crop,
                                                   " pixels"));
  }
  return absl::OkStatus();
}

void Augment(const Augmentation& augmentation, const Shape& shape, const Variation& variation,
             absl::Span<float> image) {
  CAIRN_CHECK(shape.rank() == 3 && static_cast<int64_t>(image.size()) == shape.num_elements());
  const Extents extents = {shape[0], shape[1], shape[2]};
  Random random(variation.seed, absl::StrCat("data/augment/", variation.epoch, "/", variation.example));
  if (augmentation.flip && random.NextBelow(2) == 1) Flip(extents, image.data());
  const auto move = [&](int64_t down_reach, int64_t right_reach) {
    const int64_t down = Draw(random, down_reach);
    const int64_t right = Draw(random, right_reach);
    Move(extents, down, right, image.data());
  };
  if (augmentation.crop > 0) move(augmentation.crop, augmentation.crop);
  if (augmentation.shift > 0) {
    move(static_cast<int64_t>(augmentation.shift * static_cast<float>(extents.height)),
         static_cast<int64_t>(augmentation.shift * static_cast<float>(extents.width)));
  }
}

}  // namespace cairn::data
