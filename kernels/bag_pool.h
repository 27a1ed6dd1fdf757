// Pooling of rows of embedding tables: the contract of BagPool, and what all backends share.
//
// A lookup of a table has bags of positions, and each position names a row. The rows of a bag become one: a *pooled
// row*. The rows themselves change with every batch and come from outside the device, so a batch has each row that it
// looks up once, among the *unique rows* of its table, and the gradients of a unique row are added up on the device.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/host_device.h"

namespace cairn::kernels {

// How the rows x_i of a bag, with weights w_i, become one. Without weights, w_i is 1. The meanings are those of
// TensorFlow's embedding_lookup_sparse: no position is dropped because of its weight, which may be negative or 0. An
// empty bag gives 0, and so does one whose divisor is 0.
enum class Combiner {
  kNone,   // every bag has one position, and is that row; takes no weights
  kSum,    // sum w_i x_i
  kMean,   // sum w_i x_i / sum w_i
  kSqrtn,  // sum w_i x_i / sqrt(sum w_i^2)
  kMax,    // the largest x_i, column by column; takes no weights
};

// "sum", "mean", "sqrtn" or "max". INVALID_ARGUMENT lists them.
absl::StatusOr<Combiner> ParseCombiner(absl::string_view name);

// Several lookups run as one op. Their bags are numbered together, lookup after lookup, and so are the positions of the
// bags; the unique rows are numbered table after table.
struct BagPoolParams {
  struct Lookup {
    int table = 0;
    Combiner combiner = Combiner::kNone;
    int64_t bags = 0;
  };
  std::vector<int64_t> widths{};  // [table] the floats of a row
  std::vector<Lookup> lookups{};
};

// INVALID_ARGUMENT for a table that does not exist, and for widths and numbers of bags below 1. UNIMPLEMENTED for more
// than 2^30 - 1 floats of pooled rows.
absl::Status Validate(const BagPoolParams& params);

// [lookup + 1] Where the pooled rows of a lookup, [bags, width], begin among all pooled rows, in floats: at multiples
// of 64. The last element is the size of all of them.
std::vector<int64_t> PooledBegins(const BagPoolParams& params);

// Where the unique rows of a table, [rows, width], begin among those of all tables.
struct TableBegin {
  int64_t row = 0;     // the number of unique rows before them
  int64_t floats = 0;  // a multiple of 4
};

// [table + 1] The places of tables with so many unique rows. The last element is the size of all of them.
std::vector<TableBegin> TableBegins(const std::vector<int64_t>& widths,
                                    const std::vector<int64_t>& unique_rows);

// One batch: bag b has the positions splits[b] to splits[b + 1]. All arrays are device memory, and the op does not
// check what they contain.
struct BagBatch {
  int64_t rows = 0;                    // unique rows of all tables, below 2^31
  const TableBegin* tables = nullptr;  // [tables + 1]
  const float* values = nullptr;       // of the unique rows, as `tables` says
  const int32_t* splits = nullptr;     // [bags + 1], ascending from 0
  const int32_t* unique = nullptr;     // [positions] the index of the row among the unique rows of its table
  const float* weights = nullptr;      // [positions]; null: all weigh 1
};

// The positions of a batch in the order of their unique rows, and those of a row in their own order. Device memory.
struct BagUses {
  const int32_t* splits = nullptr;  // [unique rows + 1], ascending from 0: the uses of each unique row
  const int32_t* bags = nullptr;    // [positions] the bag
  const float* weights = nullptr;   // [positions]; null: all weigh 1
};

// Sums are taken in the order of the positions, one after another and without fused multiply-adds, so all backends give
// the same bits.
class BagPool {
 public:
  virtual ~BagPool() = default;
  // Writes the pooled rows, as PooledBegins() says, and stores what the next Backward() needs.
  virtual absl::Status Forward(const BagBatch& batch, float* pooled) = 0;
  // Writes the gradients of the unique rows, in the places of their values, for the gradients of the pooled rows of the
  // last Forward(), which had the same batch. Of a maximum, the first position with the largest value of a column has
  // the gradient.
  virtual absl::Status Backward(const BagBatch& batch, const BagUses& uses, const float* dpooled,
                                float* dvalues) = 0;
};

// --- Formulas ---

// Always inlined, because the loops of the CPU are compiled for several instruction sets.
#define CAIRN_BAG_FORMULA CAIRN_HOST_DEVICE __attribute__((always_inline)) inline

// Products and sums that no compiler fuses. The host's sources are compiled without contraction.
CAIRN_BAG_FORMULA float Times(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
CAIRN_BAG_FORMULA float Plus(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

// The factor of the weighted sum of the bag with the positions from `begin` to `end`.
CAIRN_BAG_FORMULA float BagScale(Combiner combiner, const float* weights, int64_t begin, int64_t end) {
  if (combiner != Combiner::kMean && combiner != Combiner::kSqrtn) return 1;
  float sum = 0;
  if (weights == nullptr) {
    sum = static_cast<float>(end - begin);
  } else {
    for (int64_t p = begin; p < end; ++p) {
      sum = Plus(sum, combiner == Combiner::kMean ? weights[p] : Times(weights[p], weights[p]));
    }
  }
  if (combiner == Combiner::kSqrtn) sum = sqrtf(sum);
  return sum == 0 ? 0.0f : 1 / sum;
}

// Whether x takes the place of the maximum so far. A NaN stays a maximum until the next NaN.
CAIRN_BAG_FORMULA bool IsNewMaximum(float x, float largest) {
  return largest < x || x != x;
}

#undef CAIRN_BAG_FORMULA

}  // namespace cairn::kernels
