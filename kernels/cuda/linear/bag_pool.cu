// Pools bags of rows of embedding tables: one launch for all lookups of a batch, and one for the gradients of all
// unique rows.
//
// The numbers of positions and of unique rows differ from step to step, so the launches are no part of a recorded step.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "kernels/bag_pool.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/rows.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"

namespace cairn::kernels::cuda {
namespace {

struct Bag {
  int32_t begin = 0;  // of its pooled row among all pooled rows, in floats
  int32_t lookup = 0;
};
struct Lookup {
  int32_t table = 0;
  Combiner combiner = Combiner::kNone;
};

// The constant part of a launch. Device memory.
struct Layout {
  const Bag* bags = nullptr;        // [bags]
  const Lookup* lookups = nullptr;  // [lookups]
  const int32_t* widths = nullptr;  // [tables]
  int32_t tables = 0;
};

// Results of a forward pass for its backward pass. Device memory.
struct Kept {
  float* scales = nullptr;  // [bags] the factor of the weighted sum
  // [pooled floats] The unique row with the maximum, or -1. Null if no lookup has maxima.
  int32_t* row_of = nullptr;
};

// Rows loaded at once. A missing row counts as 0, which changes no sum: a sum that begins with +0 never becomes -0.
constexpr int kAhead = 4;

// A bag's positions, and the unique rows of its table.
struct Rows {
  int64_t begin = 0, end = 0;
  const int32_t* unique = nullptr;
  const float* weights = nullptr;
  const float* values = nullptr;
  int64_t width = 0;
};

// Writes the columns of a bag that this thread has: the sum of the weighted rows, in order, times `scale`.
template <int kUnit>
__device__ void PoolSum(const RowPlan& plan, const Rows& rows, float scale, float* to) {
  plan.ForEach<kUnit>(rows.width, [&](int64_t j) {
    Pack<float, kUnit> sum = {};
    for (int64_t first = rows.begin; first < rows.end; first += kAhead) {
      Pack<float, kUnit> v[kAhead];
      float weights[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const bool exists = first + k < rows.end;
        v[k] = {};
        if (exists) v[k] = Load<kUnit>(rows.values + rows.unique[first + k] * rows.width + j);
        weights[k] = exists && rows.weights != nullptr ? rows.weights[first + k] : 1.0f;
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
#pragma unroll
        for (int c = 0; c < kUnit; ++c) sum.at[c] = Plus(sum.at[c], Times(weights[k], v[k].at[c]));
      }
    }
#pragma unroll
    for (int c = 0; c < kUnit; ++c) sum.at[c] = Times(sum.at[c], scale);
    Store(to + j, sum);
  });
}

template <int kUnit>
__device__ void CopyRow(const RowPlan& plan, const Rows& rows, float* to) {
  plan.ForEach<kUnit>(rows.width, [&](int64_t j) {
    Store(to + j, Load<kUnit>(rows.values + rows.unique[rows.begin] * rows.width + j));
  });
}

__device__ void PoolMaximum(const RowPlan& plan, const Rows& rows, float* to, int32_t* row_of) {
  plan.ForEach<1>(rows.width, [&](int64_t j) {
    float largest = 0;
    int32_t row = -1;
    for (int64_t p = rows.begin; p < rows.end; ++p) {
      const float x = rows.values[rows.unique[p] * rows.width + j];
      if (p > rows.begin && !IsNewMaximum(x, largest)) continue;
      largest = x;
      row = rows.unique[p];
    }
    to[j] = largest;
    row_of[j] = row;
  });
}

// The threads are mapped to the bags. Deterministic.
__global__ void PoolRows(RowPlan plan, Layout layout, BagBatch batch, Kept kept, float* pooled) {
  for (int64_t round = 0; round < plan.rounds; ++round) {
    const int64_t b = plan.Row(round);
    if (b >= plan.rows) return;
    const Bag bag = layout.bags[b];
    const Lookup lookup = layout.lookups[bag.lookup];
    const Rows rows = {.begin = batch.splits[b],
                       .end = batch.splits[b + 1],
                       .unique = batch.unique,
                       .weights = batch.weights,
                       .values = batch.values + batch.tables[lookup.table].floats,
                       .width = layout.widths[lookup.table]};
    const float scale = BagScale(lookup.combiner, rows.weights, rows.begin, rows.end);
    if (plan.rank() == 0) kept.scales[b] = scale;
    float* const to = pooled + bag.begin;
    const bool aligned = rows.width % 4 == 0;
    if (lookup.combiner == Combiner::kMax) {
      PoolMaximum(plan, rows, to, kept.row_of + bag.begin);
    } else if (lookup.combiner == Combiner::kNone) {
      aligned ? CopyRow<4>(plan, rows, to) : CopyRow<1>(plan, rows, to);
    } else {
      aligned ? PoolSum<4>(plan, rows, scale, to) : PoolSum<1>(plan, rows, scale, to);
    }
  }
}

// A use of a unique row adds factor * gradient[column] to its gradient or, of a maximum, to the columns that it has.
struct Use {
  float factor = 0;                 // 0 for a second use by a bag with maxima
  const float* gradient = nullptr;  // [width]
  const int32_t* row_of = nullptr;  // [width]; null: not of a maximum
};

// A unique row: its uses from `begin` to `end`, and its index among those of its table.
struct UniqueRow {
  int64_t begin = 0, end = 0, width = 0;
  int32_t index = 0;
  float* gradient = nullptr;  // [width]
};

struct Gradients {
  Layout layout;
  const TableBegin* tables = nullptr;
  int64_t rows = 0;
  BagUses uses;
  Kept kept;
  const float* dpooled = nullptr;
  float* dvalues = nullptr;

  __device__ UniqueRow RowAt(int64_t row) const {
    int32_t table = 0, after = layout.tables;  // the table that has the row
    while (after - table > 1) {
      const int32_t middle = table + (after - table) / 2;
      (tables[middle].row <= row ? table : after) = middle;
    }
    const int64_t width = layout.widths[table], index = row - tables[table].row;
    return {.begin = uses.splits[row],
            .end = uses.splits[row + 1],
            .width = width,
            .index = static_cast<int32_t>(index),
            .gradient = dvalues + tables[table].floats + index * width};
  }

  __device__ Use UseAt(int64_t use, const UniqueRow& row) const {
    const int32_t b = uses.bags[use];
    const Bag bag = layout.bags[b];
    Use found = {.factor = kept.scales[b], .gradient = dpooled + bag.begin};
    if (kept.row_of != nullptr && layout.lookups[bag.lookup].combiner == Combiner::kMax) {
      found.row_of = kept.row_of + bag.begin;
      if (use > row.begin && uses.bags[use - 1] == b) found.factor = 0;  // uses by one bag are adjacent
    } else if (uses.weights != nullptr) {
      found.factor = Times(uses.weights[use], found.factor);
    }
    return found;
  }

  __device__ static float Term(const Use& use, const UniqueRow& row, int64_t column) {
    if (use.row_of == nullptr) return Times(use.factor, use.gradient[column]);
    return use.factor != 0 && use.row_of[column] == row.index ? use.gradient[column] : 0.0f;
  }
};

constexpr int kMaxShortUses = 128;  // a row with more is added up by the whole block
constexpr int kTileUses = 128;      // uses of such a row that are loaded at once

// Adds up the columns `rank`, `rank` + `lanes`, ... of a row, use after use.
__device__ void AddShortRow(const Gradients& gradients, const UniqueRow& row, int rank, int lanes) {
  for (int64_t j = rank; j < row.width; j += lanes) {
    float sum = 0;
    for (int64_t first = row.begin; first < row.end; first += kAhead) {
      float v[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        v[k] = first + k < row.end ? Gradients::Term(gradients.UseAt(first + k, row), row, j) : 0.0f;
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) sum = Plus(sum, v[k]);
    }
    row.gradient[j] = sum;
  }
}

// All threads of the block load terms, and those of one warp add them, each a column.
__device__ void AddLongRow(const Gradients& gradients, const UniqueRow& row) {
  __shared__ float tile[kTileUses][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int64_t column = lane; column - lane < row.width; column += kWarp) {
    float sum = 0;
    for (int64_t first = row.begin; first < row.end; first += kTileUses) {
      for (int k = warp; k < kTileUses; k += kBlock / kWarp) {
        const bool exists = first + k < row.end && column < row.width;
        tile[k][lane] = exists ? Gradients::Term(gradients.UseAt(first + k, row), row, column) : 0.0f;
      }
      __syncthreads();
      if (warp == 0) {
#pragma unroll 16
        for (int k = 0; k < kTileUses; ++k) sum = Plus(sum, tile[k][lane]);
      }
      __syncthreads();
    }
    if (warp == 0 && column < row.width) row.gradient[column] = sum;
  }
}

// Writes the gradients of the unique rows. 2^shift threads have one row, and kBlock threads a block. Adjacent rows are
// in different blocks, because rows with many uses come early in a table. Deterministic: each column is added up in the
// order of its uses.
__global__ void AddUses(Gradients gradients, int shift) {
  __shared__ bool is_long[kBlock];
  const int group = static_cast<int>(threadIdx.x) >> shift, lanes = 1 << shift;
  const int64_t own = blockIdx.x + int64_t{group} * gridDim.x;
  bool own_is_long = false;
  if (own < gradients.rows) {
    const UniqueRow row = gradients.RowAt(own);
    own_is_long = row.end - row.begin > kMaxShortUses;
    if (!own_is_long) AddShortRow(gradients, row, static_cast<int>(threadIdx.x) & (lanes - 1), lanes);
  }
  is_long[threadIdx.x] = own_is_long;
  __syncthreads();
  for (int k = 0; k < kBlock >> shift; ++k) {
    if (is_long[k << shift]) AddLongRow(gradients, gradients.RowAt(blockIdx.x + int64_t{k} * gridDim.x));
  }
}

// A constant array in device memory.
template <typename T>
class Constants {
 public:
  static absl::StatusOr<Constants> Create(Context& context, std::vector<T> values) {
    Constants constants;
    constants.host_ = std::move(values);
    const auto bytes = static_cast<int64_t>(constants.host_.size() * sizeof(T));
    CAIRN_ASSIGN_OR_RETURN(constants.memory_,
                           context.Allocate(CeilDiv(bytes, sizeof(float)), "bags of lookups"));
    CAIRN_RETURN_IF_ERROR(context.CopyToDevice(constants.host_.data(), constants.memory_->data(), bytes));
    return constants;
  }
  const T* get() const { return reinterpret_cast<const T*>(memory_->data()); }

 private:
  std::vector<T> host_;  // what is copied
  std::unique_ptr<DeviceMemory> memory_;
};

class CudaBagPool final : public BagPool {
 public:
  static absl::StatusOr<std::unique_ptr<BagPool>> Create(Context& context, const BagPoolParams& params) {
    std::unique_ptr<CudaBagPool> pool(new CudaBagPool(context));
    CAIRN_RETURN_IF_ERROR(pool->Init(params));
    return pool;
  }

  absl::Status Forward(const BagBatch& batch, float* pooled) override {
    constexpr int64_t kMaxBlocks = 1 << 20;
    const RowPlan plan = RowPlan::Make(bags_count_, units_, kMaxBlocks);
    return CAIRN_LAUNCH(PoolRows, plan.grid, plan.block, 0, context_.stream(), plan, layout_, batch, kept_,
                        pooled);
  }

  absl::Status Backward(const BagBatch& batch, const BagUses& uses, const float* dpooled,
                        float* dvalues) override {
    if (batch.rows == 0) return absl::OkStatus();
    const Gradients gradients = {.layout = layout_,
                                 .tables = batch.tables,
                                 .rows = batch.rows,
                                 .uses = uses,
                                 .kept = kept_,
                                 .dpooled = dpooled,
                                 .dvalues = dvalues};
    const auto grid = static_cast<unsigned>(CeilDiv(batch.rows, kBlock >> shift_));
    return CAIRN_LAUNCH(AddUses, grid, kBlock, 0, context_.stream(), gradients, shift_);
  }

 private:
  explicit CudaBagPool(Context& context) : context_(context) {}

  absl::Status Init(const BagPoolParams& params) {
    std::vector<Bag> bags;
    std::vector<Lookup> lookups;
    const std::vector<int64_t> begins = PooledBegins(params);
    bool has_maxima = false;
    for (size_t i = 0; i < params.lookups.size(); ++i) {
      const BagPoolParams::Lookup& lookup = params.lookups[i];
      const int64_t width = params.widths[static_cast<size_t>(lookup.table)];
      for (int64_t b = 0; b < lookup.bags; ++b) {
        bags.push_back({static_cast<int32_t>(begins[i] + b * width), static_cast<int32_t>(i)});
      }
      lookups.push_back({.table = lookup.table, .combiner = lookup.combiner});
      has_maxima |= lookup.combiner == Combiner::kMax;
      units_ = std::max(units_, width % 4 == 0 ? width / 4 : width);
      while (1 << shift_ < std::min<int64_t>(width, kMaxLanes)) ++shift_;
    }
    bags_count_ = static_cast<int64_t>(bags.size());
    CAIRN_ASSIGN_OR_RETURN(bags_, Constants<Bag>::Create(context_, std::move(bags)));
    CAIRN_ASSIGN_OR_RETURN(lookups_, Constants<Lookup>::Create(context_, std::move(lookups)));
    CAIRN_ASSIGN_OR_RETURN(
        widths_, Constants<int32_t>::Create(context_, {params.widths.begin(), params.widths.end()}));
    layout_ = {.bags = bags_->get(),
               .lookups = lookups_->get(),
               .widths = widths_->get(),
               .tables = static_cast<int32_t>(params.widths.size())};
    CAIRN_ASSIGN_OR_RETURN(scales_, context_.Allocate(bags_count_, "factors of bags"));
    kept_.scales = scales_->data();
    if (!has_maxima) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(row_of_, context_.Allocate(begins.back(), "rows of maxima"));
    kept_.row_of = reinterpret_cast<int32_t*>(row_of_->data());
    return absl::OkStatus();
  }

  static constexpr int64_t kMaxLanes = 16;

  Context& context_;
  int64_t bags_count_ = 0;
  int64_t units_ = 1;  // the most packs that a bag has
  int shift_ = 0;      // 2^shift threads share a unique row
  std::optional<Constants<Bag>> bags_;
  std::optional<Constants<Lookup>> lookups_;
  std::optional<Constants<int32_t>> widths_;
  std::unique_ptr<DeviceMemory> scales_, row_of_;
  Layout layout_;
  Kept kept_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BagPool>> MakeBagPool(Context& context, const BagPoolParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return CudaBagPool::Create(context, params);
}

}  // namespace cairn::kernels::cuda
