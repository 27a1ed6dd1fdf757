// Pools the rows of a batch's bags of ids, on a worker, and turns the gradient of what was pooled into the gradients of
// the unique rows.
//
// Pure functions, for any thread. Sums are taken in the order of the positions, so that the bits depend on the bags
// alone. Work may be divided among threads by tables or by features.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::embedding {

// How the rows x_i of a bag, with weights w_i, become one. Without weights, w_i is 1. The meanings are those of
// TensorFlow's embedding_lookup_sparse: no position is dropped because of its weight, which may be negative or 0.
enum class Combiner {
  kSum,    // sum w_i x_i
  kMean,   // sum w_i x_i / sum w_i
  kSqrtn,  // sum w_i x_i / sqrt(sum w_i^2)
  kMax,    // the largest x_i, column by column; takes no weights
};

// "sum", "mean", "sqrtn" or "max". INVALID_ARGUMENT lists them.
absl::StatusOr<Combiner> ParseCombiner(absl::string_view name);

// Bags over the unique rows of a batch. Borrowed.
struct Bags {
  absl::Span<const int64_t>
      row_splits;  // [bags + 1], ascending: bag b has the positions row_splits[b] to [b + 1]
  absl::Span<const int32_t> unique;   // [positions] the unique row of each position
  absl::Span<const float> weights{};  // [positions]; empty: without weights

  int64_t size() const { return static_cast<int64_t>(row_splits.size()) - 1; }
};

// INVALID_ARGUMENT unless the splits ascend from 0 to the number of positions, each position names one of `rows` rows,
// there are no weights or one for each position, and `combiner` takes them. The functions below require it.
absl::Status CheckBags(const Bags& bags, Combiner combiner, int64_t rows);

// `pooled` [bags] [dim] of `rows` [unique rows] [dim]. An empty bag gives 0, and so does one whose divisor is 0.
void Pool(const Bags& bags, Combiner combiner, int dim, absl::Span<const float> rows,
          absl::Span<float> pooled);

// Adds to `row_gradients` [unique rows] [dim] the gradients of the rows, for the gradient `pooled_gradient` [bags]
// [dim] of what Pool() gave. With kMax, `rows` are the rows of Pool(), and the first position with the largest value of
// a column has its gradient; otherwise `rows` is not read. Features that share a table add to one `row_gradients`.
struct PoolGradients {
  absl::Span<const float> pooled_gradient;
  absl::Span<const float> rows;
  absl::Span<float> row_gradients;
};
void AddPoolGradients(const Bags& bags, Combiner combiner, int dim, const PoolGradients& gradients);

}  // namespace cairn::embedding
