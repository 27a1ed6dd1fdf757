// Element-wise functions of inputs that are broadcast to one shape: the index mapping from the output to each
// input, and the functions themselves. All backends share them.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/host_device.h"
#include "common/core/shape.h"
#include "kernels/ops.h"

namespace cairn::kernels {

// Plain data, so that it can be a kernel's argument.
struct Broadcast {
  static constexpr int kMaxAxes = 8, kMaxInputs = 32;

  int inputs = 0, axes = 0;
  int64_t elements = 0;  // elements of the output
  // Extents of the output. Adjacent axes that are broadcast alike for every input are merged.
  int64_t extents[kMaxAxes] = {};
  // Strides in elements, [input][axis]; 0 along an axis over which the input is repeated.
  int64_t strides[kMaxInputs][kMaxAxes] = {};

  CAIRN_HOST_DEVICE bool repeats(int input) const {
    for (int axis = 0; axis < axes; ++axis) {
      if (strides[input][axis] == 0 && extents[axis] > 1) return true;
    }
    return false;
  }
  // The index of an element of the output along each axis.
  CAIRN_HOST_DEVICE void Locate(int64_t element, int64_t* index) const {
    for (int axis = axes - 1; axis >= 0; --axis) {
      index[axis] = element % extents[axis];
      element /= extents[axis];
    }
  }
  // Where input `input` has the element of the output with this index.
  CAIRN_HOST_DEVICE int64_t OffsetOf(int input, const int64_t* index) const {
    int64_t offset = 0;
    for (int axis = 0; axis < axes; ++axis) offset += index[axis] * strides[input][axis];
    return offset;
  }
  CAIRN_HOST_DEVICE int64_t elements_of(int input) const {
    int64_t count = 1;
    for (int axis = 0; axis < axes; ++axis) count *= strides[input][axis] == 0 ? 1 : extents[axis];
    return count;
  }
};

// The shape to which all `shapes` are broadcast. They must have the same rank, and along each axis their
// extents must be equal or 1. INVALID_ARGUMENT names two shapes that do not fit.
absl::StatusOr<Shape> BroadcastShape(absl::Span<const Shape> shapes);
// The index mapping for these inputs, of one layout. Blocked images must have the same number of channels; their
// padding channels are elements too. INVALID_ARGUMENT for shapes that do not broadcast, inputs of different layouts or
// types, or more than kMaxInputs inputs or kMaxAxes axes.
absl::StatusOr<Broadcast> MakeBroadcast(absl::Span<const TensorDesc> inputs);

// Describes the output of a merge. Fails like MakeBroadcast(), or with INVALID_ARGUMENT for a difference of
// more than two inputs, or a selection of other than three.
absl::StatusOr<TensorDesc> OutputDesc(const MergeParams& params);

// Whether `x` replaces `best`, the maximum or minimum so far. A NaN replaces every number and is never
// replaced. Of equal inputs, the first stays and gets the gradient (TensorFlow's rule).
CAIRN_HOST_DEVICE inline bool Supersedes(MergeKind kind, float x, float best) {
  if (best != best) return false;
  return x != x || (kind == MergeKind::kMaximum ? x > best : x < best);
}

// Folds the next input into a merge's value; an average is divided at the end.
CAIRN_HOST_DEVICE inline float MergeNext(MergeKind kind, float merged, float x) {
  switch (kind) {
    case MergeKind::kSubtract:
      return merged - x;
    case MergeKind::kMultiply:
      return merged * x;
    case MergeKind::kMaximum:
    case MergeKind::kMinimum:
      return Supersedes(kind, x, merged) ? x : merged;
    case MergeKind::kAdd:
    case MergeKind::kAverage:
    case MergeKind::kSelect:  // is no fold: Select()
      break;
  }
  return merged + x;
}

// kSelect
CAIRN_HOST_DEVICE inline float Select(float condition, float x, float otherwise) {
  return condition != 0 ? x : otherwise;
}

// The derivative of the merge with respect to input `k`, where `value(i)` is the element of input `i`.
template <typename Value>
CAIRN_HOST_DEVICE inline float MergeDerivative(MergeKind kind, int inputs, int k, const Value& value) {
  float product = 1;
  int winner = 0;
  switch (kind) {
    case MergeKind::kAdd:
      return 1;
    case MergeKind::kSubtract:
      return k == 0 ? 1.0f : -1.0f;
    case MergeKind::kAverage:
      return 1.0f / static_cast<float>(inputs);
    case MergeKind::kMultiply:
      for (int i = 0; i < inputs; ++i) {
        if (i != k) product *= value(i);
      }
      return product;
    case MergeKind::kMaximum:
    case MergeKind::kMinimum:
      for (int i = 1; i < inputs; ++i) {
        if (Supersedes(kind, value(i), value(winner))) winner = i;
      }
      return winner == k ? 1.0f : 0.0f;
    case MergeKind::kSelect:
      return k != 0 && (k == 1) == (value(0) != 0) ? 1.0f : 0.0f;
  }
  return 0;
}

// dy times the derivative. What is not selected has a gradient of 0 even if dy is not finite.
template <typename Value>
CAIRN_HOST_DEVICE inline float MergeGradient(MergeKind kind, int inputs, int k, const Value& value,
                                             float dy) {
  const float derivative = MergeDerivative(kind, inputs, k, value);
  return kind == MergeKind::kSelect && derivative == 0 ? 0.0f : dy * derivative;
}

}  // namespace cairn::kernels
