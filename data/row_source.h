// The inputs of a set of examples, one row of numbers each, in memory or in mapped files.
//
// Created by a format, owned by the data set. Immutable; read from any thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "common/core/tensor_view.h"

namespace cairn::data {

class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int64_t size() const = 0;
  virtual const Shape& row_shape() const = 0;
  // [part] The number of values in the longest row of a ragged part, whose rows have different lengths; -1 for a part
  // that is not ragged. row_shape() includes the longest rows. Empty: no part is ragged.
  virtual std::vector<int64_t> ragged_parts() const { return {}; }
  // Announces that row `index` will be read soon, so that it is fetched from disk together with others. Does
  // not wait.
  virtual void Prefetch(int64_t index) const = 0;
  // Asks the processor to fetch row `index` from memory; it will be read after a few others. Affects only the speed.
  virtual void PrefetchMemory(int64_t /*index*/) const {}
  // Writes row `index` to the tensors of `to`, one after another, which together have row_shape().num_elements()
  // elements; a tensor with an `end` gets as many as its part of the row has. Numbers are scaled in float32
  // tensors, and are written as they are in integer tensors. For a row that cannot be read, or a number that its
  // tensor cannot hold, it writes zeros and makes status() an error.
  virtual void Read(int64_t index, absl::Span<const MutableTensorView> to) const = 0;
  // The first error of Read(), naming the file. Always OK for rows that were checked when they were loaded.
  virtual absl::Status status() const { return absl::OkStatus(); }
};

// value * factor / divisor. (1, 255) gives exactly Keras' `x / 255`, bit by bit; a factor of 1/255 does not.
struct Scale {
  float factor = 1;
  float divisor = 1;
  float operator()(float value) const { return value * factor / divisor; }
};

// The scale for bytes or for other numbers, as DataOptions::input_scale describes.
inline Scale ScaleOf(float input_scale, bool bytes) {
  if (!std::isnan(input_scale)) return {.factor = input_scale};
  return {.divisor = bytes ? 255.0f : 1.0f};
}

}  // namespace cairn::data
