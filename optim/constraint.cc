#include "optim/constraint.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()

// Calls body(begin, group, step) for each run of `width` values along the last axis: the values from `begin` on belong
// to the norms `group`, `group` + step, `group` + 2 step, ...
template <typename Body>
void ForEachRun(const Constraint& constraint, const Shape& shape, const Body& body) {
  const int last = shape.rank() - 1;
  std::vector<int64_t> step(static_cast<size_t>(shape.rank()));  // [axis] from one group to the next
  int64_t groups = 1;
  for (int axis = last; axis >= 0; --axis) {
    if (std::binary_search(constraint.axes.begin(), constraint.axes.end(), axis)) continue;
    step[static_cast<size_t>(axis)] = groups;
    groups *= shape[axis];
  }
  const int64_t width = shape[last];
  for (int64_t run = 0, runs = shape.num_elements() / width; run < runs; ++run) {
    int64_t group = 0, rest = run;
    for (int axis = last - 1; axis >= 0; --axis) {
      group += rest % shape[axis] * step[static_cast<size_t>(axis)];
      rest /= shape[axis];
    }
    body(run * width, group, step.back());
  }
}

// The number of norms.
int64_t Groups(const Constraint& constraint, const Shape& shape) {
  int64_t groups = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!std::binary_search(constraint.axes.begin(), constraint.axes.end(), axis)) groups *= shape[axis];
  }
  return groups;
}

}  // namespace

void RaiseToZero(int64_t count, float* values, Isa isa) {
  ForEachElement(isa, count,
                 [=](int64_t i) CAIRN_INLINE_LAMBDA { values[i] = values[i] < 0 ? 0.0f : values[i]; });
}

void ScaleToNorms(const Constraint& constraint, const Shape& shape, float* values) {
  if (shape.num_elements() == 0) return;
  const int64_t width = shape[shape.rank() - 1];
  std::vector<double> squares(static_cast<size_t>(Groups(constraint, shape)));
  ForEachRun(constraint, shape, [&](int64_t begin, int64_t group, int64_t step) {
    double* const sums = squares.data() + group;
    for (int64_t i = 0; i < width; ++i) {
      const double value = values[begin + i];
      sums[i * step] += value * value;
    }
  });
  std::vector<float> factors;
  factors.reserve(squares.size());
  const double rate = constraint.rate;
  for (const double sum : squares) {
    const double norm = std::sqrt(sum);
    const double clipped = std::min(std::max(norm, double{constraint.min_norm}), double{constraint.max_norm});
    factors.push_back(static_cast<float>((rate * clipped + (1 - rate) * norm) / (kEpsilon + norm)));
  }
  ForEachRun(constraint, shape, [&](int64_t begin, int64_t group, int64_t step) {
    const float* const of_group = factors.data() + group;
    for (int64_t i = 0; i < width; ++i) values[begin + i] *= of_group[i * step];
  });
}

}  // namespace cairn::optim
