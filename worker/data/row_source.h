// The inputs of a set of examples, one row of floats each, wherever they lie: in memory or in mapped files.
//
// Made by a format, owned by the data set. Immutable; read from any thread.
#pragma once

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/shape.h"

namespace cairn::data {

class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int64_t size() const = 0;
  virtual const Shape& row_shape() const = 0;
  // Says that row `index` is about to be read, so that it is fetched from the disk while others are. Does not
  // wait.
  virtual void Prefetch(int64_t index) const = 0;
  // Writes row `index`, scaled, to `to` [row_shape().num_elements()]. A row that cannot be read becomes zeros
  // and makes status() an error.
  virtual void Read(int64_t index, absl::Span<float> to) const = 0;
  // The first error that Read() met, naming the file. Rows that are checked at loading have none.
  virtual absl::Status status() const { return absl::OkStatus(); }
};

// value * factor / divisor: (1, 255) gives Keras' `x / 255` to the bit, which a factor of 1/255 does not.
struct Scale {
  float factor = 1;
  float divisor = 1;
  float operator()(float value) const { return value * factor / divisor; }
};

// DataOptions::input_scale for inputs that are bytes, or numbers.
inline Scale ScaleOf(float input_scale, bool bytes) {
  if (!std::isnan(input_scale)) return {.factor = input_scale};
  return {.divisor = bytes ? 255.0f : 1.0f};
}

}  // namespace cairn::data
