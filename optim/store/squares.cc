#include "optim/store/squares.h"

#include <algorithm>
#include <tuple>

namespace cairn::optim {

Squares Total(absl::Span<const Squares> bands) {
  Squares total;
  for (const Squares& band : bands) total += band;
  return total;
}

VariableSquares AddUp(std::vector<SliceSquares> slices) {
  std::sort(slices.begin(), slices.end(), [](const SliceSquares& a, const SliceSquares& b) {
    return std::tie(a.variable, a.row_begin) < std::tie(b.variable, b.row_begin);
  });
  VariableSquares variables;
  for (const SliceSquares& slice : slices) {
    Squares& sum = variables[slice.variable];
    for (const Squares& band : slice.bands) sum += band;
  }
  return variables;
}

double AllGradients(const VariableSquares& variables) {
  double sum = 0;
  for (const auto& [name, squares] : variables) sum += squares.gradient;
  return sum;
}

}  // namespace cairn::optim
