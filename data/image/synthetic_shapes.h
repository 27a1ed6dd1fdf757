// Synthetic images for segmentation: disks, squares and triangles on a noisy background, with the class of each pixel.
//
// Images are 32x32 pixels of one channel, from 0 to about 1. The gray of a shape says nothing about its class; where
// shapes overlap, the last one is seen. A seed gives the same files on every machine of one C library.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace cairn::data {

struct SyntheticShapesOptions {
  int64_t train_images = 4'000, test_images = 1'000;
  uint64_t seed = 0;
};

inline constexpr int kShapesSide = 32;    // pixels
inline constexpr int kShapesClasses = 4;  // background, disk, square, triangle

// Writes x_train.npy [images,32,32,1], y_train.npy [images,32,32], x_test.npy and y_test.npy into `directory`, which is
// created if missing. Image i does not depend on the number of images. INVALID_ARGUMENT for numbers of images outside
// [1, 1e6]; otherwise the system's error.
absl::Status WriteSyntheticShapes(const std::string& directory, const SyntheticShapesOptions& options);

}  // namespace cairn::data
