// The gradient of a table whose rows are looked up by index: dense, rows without an index are 0.
//
// LinkPlaces() links the places of each row of the table into a list, in arbitrary order. Then AddRows() lets one
// warp per row sort the list of the row, which is usually short, and add the gradients in the order of the places.
// So the sums are deterministic, and not all indices need to be sorted together. A row with more than 32 places is
// processed by the whole block: each warp scans a part of all indices, which costs one pass over the indices for
// each such row.
//
// `Places` are the places of the indices, numbered from 0; all functions but Count() are for one of them:
//   int64_t Count()                          fewer than 2^32
//   int64_t TableRow(place, table_rows)      the row of the table, or -1
//   void Prepare(place)                      called once, before Gradient()
//   uint32_t& Next(place)                    working memory
//   float Gradient(place, column)            what the place adds to its row of the table
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "common/core/status.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/reduce.h"

namespace cairn::kernels::cuda {

// The row of the table for an index, or -1.
__device__ inline int64_t RowOf(float index, int64_t table_rows) {
  return index >= 0 && index < static_cast<float>(table_rows) ? static_cast<int64_t>(index) : -1;
}
template <typename Integer>
__device__ int64_t RowOf(Integer index, int64_t table_rows) {
  const int64_t row = index;
  return row >= 0 && row < table_rows ? row : -1;
}

struct GradientTable {
  int64_t rows = 0, width = 0;
  uint32_t* heads = nullptr;  // [rows] working memory, 0 before and after
  float* gradient = nullptr;  // [rows, width], at any address
};

// Links the places of each table row into a list. heads [table_rows], which must be 0 before the call, and
// Next() contain places + 1; 0 ends a list. The threads stride over the places. The order of the lists is not
// deterministic.
template <typename Places>
__global__ void LinkPlaces(Places places, int64_t table_rows, uint32_t* heads) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < places.Count(); i += CAIRN_GLOBAL_THREADS) {
    places.Prepare(i);
    const int64_t row = places.TableRow(i, table_rows);
    if (row >= 0) places.Next(i) = atomicExch(&heads[row], static_cast<uint32_t>(i) + 1);
  }
}

inline constexpr int kAddWarps = 16;   // warps of a block of AddRows()
inline constexpr int kAddColumns = 4;  // columns of a lane, 32 apart

// Adds to `sums` the gradients of the places that `matches` selects, in order: bit k stands for place `first` + k.
// Each lane adds its columns, from `column` on. Loads those of four places at once.
template <typename Places>
__device__ void AddMatches(const Places& places, unsigned matches, int64_t first, int64_t width,
                           int64_t column, float (&sums)[kAddColumns]) {
  constexpr int kAhead = 4;
  while (matches != 0) {
    float v[kAhead][kAddColumns];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t place = first + __ffs(static_cast<int>(matches)) - 1;
#pragma unroll
      for (int c = 0; c < kAddColumns; ++c) {
        const int64_t j = column + c * kWarp;
        v[k][c] = matches != 0 && j < width ? places.Gradient(place, j) : 0.0f;
      }
      matches &= matches - 1;
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
#pragma unroll
      for (int c = 0; c < kAddColumns; ++c) sums[c] += v[k][c];
    }
  }
}

// Adds to `sums` the gradients of the places whose row is `row`, in order, from place `begin` to `end`. Each lane
// adds its columns, from `column` on. Must be called by whole warps.
template <typename Places>
__device__ void AddPart(const Places& places, int64_t begin, int64_t end, int64_t row,
                        const GradientTable& table, int64_t column, float (&sums)[kAddColumns]) {
  constexpr int kAhead = 4;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t i = begin; i < end; i += kAhead * kWarp) {
    bool match[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t place = i + k * kWarp + lane;
      match[k] = place < end && places.TableRow(place, table.rows) == row;
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      AddMatches(places, __ballot_sync(kAllLanes, match[k]), i + k * kWarp, table.width, column, sums);
    }
  }
}

// Computes table.gradient from the lists that LinkPlaces() made. Each warp has one row of the table. Adjacent rows
// are in different blocks, because frequent indices are usually adjacent. Sets the heads to 0 again. Deterministic.
template <typename Places>
__global__ void AddRows(Places places, GradientTable table) {
  __shared__ uint32_t sorted[kAddWarps][kWarp];
  __shared__ bool is_long[kAddWarps];
  __shared__ float partials[kAddWarps][kAddColumns][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = blockIdx.x + int64_t{warp} * gridDim.x, width = table.width;

  // The warp walks along its list; lane k keeps the k-th place.
  uint32_t at = row < table.rows ? table.heads[row] : 0, own = 0;
  int count = 0;
  for (; at != 0 && count < kWarp; ++count) {
    if (lane == count) own = at - 1;
    at = places.Next(at - 1);
  }
  __syncwarp();  // all lanes have read the head
  if (lane == 0) {
    is_long[warp] = at != 0;
    if (row < table.rows) table.heads[row] = 0;
  }
  if (at == 0 && row < table.rows) {
    int rank = 0;
    for (int k = 0; k < count; ++k) rank += __shfl_sync(kAllLanes, own, k) < own ? 1 : 0;
    if (lane < count) sorted[warp][rank] = own;
    __syncwarp();
    for (int64_t j = lane; j < width; j += kWarp) {
      float sum = 0;
#pragma unroll 4
      for (int k = 0; k < count; ++k) sum += places.Gradient(sorted[warp][k], j);
      table.gradient[row * width + j] = sum;
    }
  }
  __syncthreads();

  // The number of places that each warp scans.
  const int64_t places_count = places.Count(), part = (places_count + kAddWarps - 1) / kAddWarps;
  const int64_t begin = warp * part, end = begin + part < places_count ? begin + part : places_count;
  for (int owner = 0; owner < kAddWarps; ++owner) {
    if (!is_long[owner]) continue;
    const int64_t long_row = blockIdx.x + int64_t{owner} * gridDim.x;
    for (int64_t column = lane; column - lane < width; column += kAddColumns * kWarp) {
      float sums[kAddColumns] = {};
      AddPart(places, begin, end, long_row, table, column, sums);
      for (int c = 0; c < kAddColumns; ++c) partials[warp][c][lane] = sums[c];
      __syncthreads();
      if (const int64_t j = column + warp * kWarp; warp < kAddColumns && j < width) {
        float total = 0;
        for (int k = 0; k < kAddWarps; ++k) total += partials[k][warp][lane];
        table.gradient[long_row * width + j] = total;
      }
      __syncthreads();
    }
  }
}

// Writes table.gradient. `link_blocks`: of LinkPlaces(), whose blocks have kBlock threads.
template <typename Places>
absl::Status WriteTableGradient(cudaStream_t stream, const Places& places, unsigned link_blocks,
                                const GradientTable& table) {
  CAIRN_RETURN_IF_ERROR(
      CAIRN_LAUNCH(LinkPlaces<Places>, link_blocks, kBlock, 0, stream, places, table.rows, table.heads));
  return CAIRN_LAUNCH(AddRows<Places>, static_cast<unsigned>(CeilDiv(table.rows, kAddWarps)),
                      kAddWarps * kWarp, 0, stream, places, table);
}

}  // namespace cairn::kernels::cuda
