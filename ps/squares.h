// Sums of squares on their way between servers: what each has of its slices, and what they come to over the
// whole variables. The order of the sums is that of the bands of rows (net::RowsPerBand) and, over variables,
// of their names, so that they are the same to the bit however variables lie on servers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "ps/optim/apply.h"

namespace cairn::ps {

// What one slice adds to the sums of its variable.
struct SliceSquares {
  std::string variable;
  int64_t row_begin = 0;
  // [band of the slice]; of a whole variable one sum, of all its bands.
  std::vector<Squares> bands;
};

using VariableSquares = std::map<std::string, Squares>;  // [variable's name]

// From 0 up in the given order: how bands add up, wherever that happens.
Squares Total(absl::Span<const Squares> bands);

// The sums over whole variables, of what all servers have. In any order.
VariableSquares AddUp(std::vector<SliceSquares> slices);

// Squares::gradient of all variables, in the order of their names.
double AllGradients(const VariableSquares& variables);

}  // namespace cairn::ps
