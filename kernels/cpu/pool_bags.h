// Pools rows in host memory without a device: what the CPU's BagPool does for one lookup (kernels/bag_pool.h).
//
// Pure functions, for any thread.
#pragma once

#include <cstdint>

#include "kernels/bag_pool.h"

namespace cairn::kernels::cpu {

// The bags of one lookup. Borrowed.
struct HostBags {
  Combiner combiner = Combiner::kNone;
  int64_t bags = 0;
  const int32_t* splits =
      nullptr;  // [bags + 1], ascending: bag b has the positions splits[b] to splits[b + 1]
  const int32_t* unique = nullptr;  // [positions] the unique row of the table
  const float* weights = nullptr;   // [positions]; null: all weigh 1
};

// The unique rows of the lookup's table, [rows, width].
struct HostRows {
  int64_t width = 0;
  const float* values = nullptr;
};

// Writes the pooled rows, [bags, width].
void PoolBags(const HostBags& bags, const HostRows& rows, float* pooled);

// Adds the gradients of the unique rows to `dvalues` [rows, width]: lookups that share a table add to the same ones.
// The values of the rows are only read for maxima.
void AddBagGradients(const HostBags& bags, const HostRows& rows, const float* dpooled, float* dvalues);

}  // namespace cairn::kernels::cpu
