// The sums of squares that servers exchange: each server's contribution, and the totals over whole variables.
// Sums are taken band by band (net::RowsPerBand) and, over variables, in the order of their names. The result
// is therefore the same to the bit for any number of servers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "optim/apply.h"

namespace cairn::optim {

// One slice's contribution to the sums of its variable.
struct SliceSquares {
  std::string variable;
  int64_t row_begin = 0;
  // [band of the slice]. For a slice that is a whole variable: only the sum over all of its bands.
  std::vector<Squares> bands;
};

using VariableSquares = std::map<std::string, Squares>;  // [variable's name]

// Adds up the bands in the given order, starting from 0. All sums over bands are computed by this function.
Squares Total(absl::Span<const Squares> bands);

// The sums over whole variables, from the slices of all servers. The order of the slices does not matter.
VariableSquares AddUp(std::vector<SliceSquares> slices);

// The sum of Squares::gradient over all variables, in the order of their names.
double AllGradients(const VariableSquares& variables);

}  // namespace cairn::optim
