// The means and variances that Keras' Normalization.adapt() finds. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/core/shape.h"

namespace cairn::worker {

class Moments {
 public:
  // `example`: the shape of an example. `axes`: those along which each position has its own mean and variance, counted
  // with the batch as axis 0, each of them in [-rank, rank] and not the batch.
  Moments(const Shape& example, const std::vector<int64_t>& axes);

  // `values`: those of an example, row-major.
  void Add(absl::Span<const float> values);

  const Shape& shape() const { return shape_; }  // of the means, in the order of the example's axes
  const std::vector<double>& means() const { return means_; }
  std::vector<double> Variances() const;  // of the whole population, as NumPy's var()

 private:
  Shape shape_;
  std::vector<size_t> mean_of_;  // [element of an example]
  // [mean] Welford's sums (Technometrics 4, 1962).
  std::vector<double> counts_, means_, squares_;
};

}  // namespace cairn::worker
