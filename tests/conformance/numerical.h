// Gradients by central differences in double precision: what the backward of every op is held against.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace cairn::conformance {

inline double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// That `got` is the gradient of `f` with respect to `values`, which f reads; they are put back. Of large
// tensors a part is tried, spread over all places of a block and a window.
inline void ExpectGradient(const std::vector<float>& got, std::vector<double>& values,
                           const std::function<double()>& f) {
  constexpr double kStep = 1e-5;
  constexpr double kTolerance =
      2e-5;  // a difference is right to about 1e-9, a float's sum of some terms to this
  constexpr size_t kMostTried = 60;
  ASSERT_EQ(got.size(), values.size());
  const size_t stride = std::max<size_t>(1, values.size() / kMostTried) | 1;
  for (size_t i = 0; i < values.size(); i += stride) {
    const double kept = values[i];
    values[i] = kept + kStep;
    const double high = f();
    values[i] = kept - kStep;
    const double low = f();
    values[i] = kept;
    const double expected = (high - low) / (2 * kStep);
    ASSERT_NEAR(got[i], expected, kTolerance * (1 + std::fabs(expected))) << "element " << i;
  }
  for (float value : got) ASSERT_TRUE(std::isfinite(value));
}

}  // namespace cairn::conformance
