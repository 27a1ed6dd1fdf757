// Sums over the rows of a batch, of which the gradients by kernels and biases consist.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cpu/onednn.h"

namespace cairn::kernels::cpu {

// The product of the transpose of a [k, m] and b [k, n]: the sum over the rows of their outer products.
//
// If rows are a multiple of 1 KB apart, the elements of a column share few sets of the caches, and oneDNN's product
// takes up to twice as long (measured on AVX2, one side below 1024). Such operands are copied, some rows at a time, to
// rows that are a cache line longer.
class TransposedMultiplier {
 public:
  // Whether the product is of a kind that this class speeds up. If not, it calls oneDNN's.
  static bool SpeedsUp(const onednn::TransposedProduct& product);

  // For products with the extents and strides of `like`, whose pointers are not used. Only while ops are made.
  TransposedMultiplier(onednn::Context& context, const onednn::TransposedProduct& like);

  absl::Status Run(const float* a, const float* b, float* c);

 private:
  // Returns the rows [begin, end) of `part`, copied to the staging memory from `offset` on if they collide.
  onednn::MatrixPart<const float> Rows(const onednn::MatrixPart<const float>& part, int64_t width,
                                       int64_t begin, int64_t end, int64_t offset) const;

  onednn::Context& context_;
  onednn::TransposedProduct like_;
  int64_t rows_at_once_;
};

// to [width] = the sum of the rows of `from` [rows, width]. Their order does not depend on the number of threads.
void SumRows(const onednn::Context& context, onednn::MatrixPart<const float> from, int64_t rows,
             int64_t width, float* to);

}  // namespace cairn::kernels::cpu
