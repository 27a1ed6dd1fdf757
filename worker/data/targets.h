// What examples are trained towards, and how much each counts: from arrays to floats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "worker/data/array.h"

namespace cairn::data {

struct Targets {
  std::vector<float> values{};  // [examples, per_example]
  int64_t per_example = 1;
  Shape shape{};            // of one example's target, of per_example elements; of one number it may be []
  int64_t num_classes = 0;  // largest class index + 1; 0 where the values are no class indices
  // The largest value + 1, if each example has several integers and none is negative; else 0. They may be
  // class indices of positions (a mask) or numbers (one-hot vectors).
  int64_t position_classes = 0;

  int64_t size() const { return static_cast<int64_t>(values.size()) / per_example; }
};

// The largest class index: floats hold every whole number up to here.
inline constexpr int64_t kLargestLabel = int64_t{1} << 24;

// The largest value + 1 if all of them are class indices, whole numbers from 0 to kLargestLabel; else 0.
int64_t ClassesIn(absl::Span<const float> values);

// Whole numbers [examples] or [examples,1] are class indices, of integers or of floats, unless one is
// negative: then they are numbers. Whole numbers of more axes or elements are class indices for each position
// where none of them is negative, and numbers as well (one-hot vectors, several labels); what they are the
// loss decides.
// INVALID_ARGUMENT naming `name` for empty shapes, class indices [examples] that are too large, and numbers
// that are not finite.
absl::StatusOr<Targets> ReadTargets(const Array& array, const std::string& name);

// Weights [examples] or [examples,1]. INVALID_ARGUMENT naming `name` for one that is negative or not finite.
absl::StatusOr<std::vector<float>> ReadWeights(const Array& array, const std::string& name);

}  // namespace cairn::data
