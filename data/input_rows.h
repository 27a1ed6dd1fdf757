// Memory for the inputs of several examples: one array for each input of the model, in the type that the model
// takes. A batch has one, which the loader fills row by row.
//
// Move-only; one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/core/shape.h"
#include "common/core/tensor_view.h"
#include "common/memory/aligned_buffer.h"

namespace cairn::data {

// How an input of the model takes one example.
struct InputSpec {
  DType dtype = DType::kFloat32;
  Shape shape{};
  bool ragged = false;  // examples have different numbers of values, and `shape` is that of the longest
};

class InputRows {
 public:
  InputRows() = default;
  // Throws OutOfMemory.
  InputRows(absl::Span<const InputSpec> specs, int64_t rows);

  // Where the inputs of example `row` are written: [input], with the shapes of the specs. Valid until the next call. If
  // there are ragged inputs, rows must be written in their order, from 0 on; their memory grows as needed, so it may
  // move, and OutOfMemory may be thrown.
  absl::Span<const MutableTensorView> Row(int64_t row);
  // Cuts the first `rows` rows, which have the shapes of the specs, to `shapes` [input], of which some have a smaller
  // first axis, so that they lie one after another. Inputs must not be ragged. Row(0) ends this.
  void Cut(int64_t rows, absl::Span<const Shape> shapes);
  // [input] The first `rows` rows: [rows, shape].
  TensorViews First(int64_t rows) const;
  // [input] All of the memory.
  const std::vector<AlignedBuffer>& buffers() const { return buffers_; }

 private:
  // Ensures that `buffer`, of which `used_bytes` are in use, has room for `more_bytes`.
  static void MakeRoom(AlignedBuffer& buffer, int64_t used_bytes, int64_t more_bytes);

  std::vector<InputSpec> specs_;
  std::vector<Shape> cut_;  // [input] after Cut(); else empty
  std::vector<AlignedBuffer> buffers_;
  std::vector<std::vector<int64_t>> row_splits_;  // [input] [rows + 1]; empty: not ragged
  std::vector<MutableTensorView> row_;            // the last result of Row()
};

}  // namespace cairn::data
