// The boundaries that Keras' Discretization.adapt() finds for an array of values.
#pragma once

#include <cstdint>
#include <vector>

namespace cairn::worker {

inline constexpr int64_t kMaxBins = 1'000'000;

// About `num_bins` - 1 quantiles of `values`, in ascending order, as Keras computes them in float32: from a summary of
// about 1 / `epsilon` of the sorted values, between which it interpolates (keras/src/layers/preprocessing/
// discretization.py). Needs at least one value, none of which is NaN; num_bins in [1, kMaxBins]; epsilon in (0, 1].
std::vector<float> BinBoundaries(std::vector<float> values, int64_t num_bins, double epsilon);

}  // namespace cairn::worker
