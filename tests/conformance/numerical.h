// Gradients by central differences in double precision: the reference for the backward pass of every op.
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

// For large tensors only some elements are tried, spread over all positions of a block and a window.
inline size_t StrideOfTried(const std::vector<double>& values) {
  constexpr size_t kMaxTried = 60;
  return std::max<size_t>(1, values.size() / kMaxTried) | 1;
}

// df / d value, where f reads the value, which is restored afterwards.
inline double CentralDifference(double& value, const std::function<double()>& f) {
  constexpr double kStep = 1e-5;
  const double kept = value;
  value = kept + kStep;
  const double high = f();
  value = kept - kStep;
  const double low = f();
  value = kept;
  return (high - low) / (2 * kStep);
}

// Expects that `got` is the gradient of `f` with respect to `values`, which f reads.
inline void ExpectGradient(const std::vector<float>& got, std::vector<double>& values,
                           const std::function<double()>& f) {
  constexpr double kTolerance =
      2e-5;  // a difference is right to about 1e-9, a float's sum of some terms to this
  ASSERT_EQ(got.size(), values.size());
  for (size_t i = 0; i < values.size(); i += StrideOfTried(values)) {
    const double expected = CentralDifference(values[i], f);
    ASSERT_NEAR(got[i], expected, kTolerance * (1 + std::fabs(expected))) << "element " << i;
  }
  for (float value : got) ASSERT_TRUE(std::isfinite(value));
}

// The same for a `got` in 16 bits: compared as a whole, by the root of the sum of squares.
inline void ExpectGradientClose(const std::vector<float>& got, std::vector<double>& values,
                                const std::function<double()>& f) {
  constexpr double kTolerance = 1e-2, kOfDifferences = 1e-8;
  ASSERT_EQ(got.size(), values.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < values.size(); i += StrideOfTried(values)) {
    const double expected = CentralDifference(values[i], f);
    error += std::pow(got[i] - expected, 2);
    size += expected * expected;
  }
  ASSERT_LE(std::sqrt(error), kTolerance * std::sqrt(size) + kOfDifferences);
  for (float value : got) ASSERT_TRUE(std::isfinite(value));
}

}  // namespace cairn::conformance
