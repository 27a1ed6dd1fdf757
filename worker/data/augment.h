// Training images varied at random, a little differently in each epoch: mirrored, or moved by a few pixels.
//
// What becomes of an example depends on (seed, epoch, index of the example) alone: neither on how many
// workers there are, nor on batches or threads. No values are made up: a pixel keeps its value or becomes 0.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"

namespace cairn::data {

// Applied in this order; as a default, nothing.
struct Augmentation {
  bool flip = false;  // mirror left and right, half of the times
  int64_t crop = 0;   // pad so many pixels of 0 on every side, then cut the image's size out anywhere
  float shift = 0;    // move by up to this part of the height and of the width, in whole pixels; below 1
  bool empty() const { return !flip && crop == 0 && shift == 0; }
};

// From "flip,crop:4,shift:0.1", in any order. INVALID_ARGUMENT naming the part that is none of these.
absl::StatusOr<Augmentation> ParseAugmentation(absl::string_view text);

// INVALID_ARGUMENT where examples of `shape` are no images [height, width, channels], or smaller than what is
// cropped.
absl::Status Validate(const Augmentation& augmentation, const Shape& shape);

// Varies `image` [shape], row-major, in place. `augmentation` must be valid for `shape`.
void Augment(const Augmentation& augmentation, const Shape& shape, uint64_t seed, int64_t epoch,
             int64_t example, absl::Span<float> image);

}  // namespace cairn::data
