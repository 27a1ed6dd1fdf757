// One update of one range of one variable: the mean of several workers' gradients, the optimizer, the new
// value, fused block by block so that every byte of memory is touched once.
//
// A pure function: it owns nothing and locks nothing. Ranges of one variable may run on several threads.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "ps/optim/isa.h"
#include "ps/optim/optimizer.h"

namespace cairn::ps {

struct WeightedGradient {
  const float* values;  // parallel to the range's values
  int64_t examples;     // how many this gradient is the mean of; in [0, 2^32), which the caller has checked
};

struct UpdateRange {
  int64_t count;  // elements
  const float* old_values;
  absl::Span<float* const> slots;  // as Optimizer::slot_names(); updated in place
  float* new_values;               // may equal old_values; nothing else may overlap
};

// What ApplyMean returns when all is well.
inline constexpr int64_t kAllFinite = -1;

// mean = sum_i examples_i * g_i / sum_i examples_i in float, summed in the given order, then the optimizer
// once.
//
// The weights are reduced by their greatest common divisor first: contributors with equal examples give the
// plain mean sum(g)/N, and a single one gives exactly its gradient. A contributor of 0 examples is not read.
// With no example at all the mean is 0, and the optimizer still runs (momentum goes on). At least one
// gradient.
//
// Returns kAllFinite, or the index in the range of the first element whose mean is infinite or NaN. The range
// is then partly updated, slots too: the caller must stop, and neither publish new_values nor save the slots.
int64_t ApplyMean(const Optimizer& optimizer, const UpdateStep& step,
                  absl::Span<const WeightedGradient> gradients, const UpdateRange& range,
                  Isa isa = WidestIsa());

}  // namespace cairn::ps
