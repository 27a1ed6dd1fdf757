// Random variation of training images, different in each epoch: mirrored, or moved by a few pixels.
//
// The result depends only on (seed, epoch, index of the example), not on the number of workers, batches or
// threads. No values are invented: a pixel keeps its value or becomes 0.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"

namespace cairn::data {

// The variations, applied in the order of these fields. The default changes nothing.
struct Augmentation {
  bool flip = false;  // mirror left and right, with probability 1/2
  int64_t crop = 0;   // pad this many zero pixels on every side, then cut out the image's size at random
  float shift = 0;    // move by up to this fraction of height and width, in whole pixels; below 1
  bool empty() const { return !flip && crop == 0 && shift == 0; }
};

// Parses "flip,crop:4,shift:0.1", in any order. INVALID_ARGUMENT naming an invalid part.
absl::StatusOr<Augmentation> ParseAugmentation(absl::string_view text);

// INVALID_ARGUMENT if examples of `shape` are not images [height, width, channels], or are smaller than the
// crop's padding.
absl::Status Validate(const Augmentation& augmentation, const Shape& shape);

// Identifies one variation of one example.
struct Variation {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t example = 0;  // index in the data set
};

// Varies `image` [shape], row-major, in place. `augmentation` must be valid for `shape`.
void Augment(const Augmentation& augmentation, const Shape& shape, const Variation& variation,
             absl::Span<float> image);

}  // namespace cairn::data
