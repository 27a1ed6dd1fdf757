#include "data/image/synthetic_shapes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "data/array/npy.h"
#include "data/file/output_directory.h"

namespace cairn::data {
namespace {

constexpr size_t kPixels = size_t{kShapesSide} * kShapesSide;

enum class Kind { kDisk = 1, kSquare = 2, kTriangle = 3 };

struct PlacedShape {
  Kind kind;
  float x, y, radius;  // of the center; half of the width

  bool Covers(float column, float row) const {
    const float across = std::fabs(column - x), down = row - y;
    switch (kind) {
      case Kind::kDisk:
        return across * across + down * down <= radius * radius;
      case Kind::kSquare:
        return across <= radius && std::fabs(down) <= radius;
      case Kind::kTriangle:  // the tip is at the top
        return down <= radius && across <= (down + radius) / 2;
    }
    return false;
  }
};

// Draws one image and the classes of its pixels.
void DrawShapes(Random& random, absl::Span<float> image, absl::Span<float> classes) {
  const float background = random.NextUniform(0.1f, 0.5f);
  std::fill(image.begin(), image.end(), background);
  std::fill(classes.begin(), classes.end(), 0.0f);
  const uint32_t shapes = 1 + random.NextBelow(3);
  for (uint32_t i = 0; i < shapes; ++i) {
    const auto kind = static_cast<Kind>(1 + random.NextBelow(3));
    const float radius = random.NextUniform(4, 9), x = random.NextUniform(4, kShapesSide - 4),
                y = random.NextUniform(4, kShapesSide - 4), gray = random.NextUniform(0.6f, 1);
    const PlacedShape shape = {kind, x, y, radius};
    for (size_t pixel = 0; pixel < kPixels; ++pixel) {
      if (!shape.Covers(static_cast<float>(pixel % kShapesSide), static_cast<float>(pixel / kShapesSide)))
        continue;
      image[pixel] = gray;
      classes[pixel] = static_cast<float>(kind);
    }
  }
  for (float& value : image) value = std::max(0.0f, value + 0.05f * random.NextNormal());
}

absl::Status WriteSet(const std::string& directory, const char* set, int64_t count, uint64_t seed) {
  std::vector<float> images(static_cast<size_t>(count) * kPixels), classes(images.size());
  for (int64_t i = 0; i < count; ++i) {
    Random random(seed, absl::StrCat("shapes/", set, "/", i));
    const size_t begin = static_cast<size_t>(i) * kPixels;
    DrawShapes(random, absl::MakeSpan(images).subspan(begin, kPixels),
               absl::MakeSpan(classes).subspan(begin, kPixels));
  }
  CAIRN_RETURN_IF_ERROR(
      WriteNpy(absl::StrCat(directory, "/x_", set, ".npy"), {count, kShapesSide, kShapesSide, 1}, images));
  return WriteNpy(absl::StrCat(directory, "/y_", set, ".npy"), {count, kShapesSide, kShapesSide}, classes);
}

}  // namespace

absl::Status WriteSyntheticShapes(const std::string& directory, const SyntheticShapesOptions& options) {
  constexpr int64_t kMaxImages = 1'000'000;
  for (const int64_t images : {options.train_images, options.test_images}) {
    if (images >= 1 && images <= kMaxImages) continue;
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", images, " images; 1 to ", kMaxImages));
  }
  CAIRN_RETURN_IF_ERROR(MakeDirectory(directory));
  CAIRN_RETURN_IF_ERROR(WriteSet(directory, "train", options.train_images, options.seed));
  return WriteSet(directory, "test", options.test_images, options.seed);
}

}  // namespace cairn::data
