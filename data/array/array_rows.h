// Rows of arrays, in the element type of their file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/array.h"
#include "data/row_source.h"

namespace cairn::data {

// Rows of `array` [examples, ...]; an array of [examples] has rows of one number. Numbers that are read as floats are
// scaled as DataOptions::input_scale describes. INVALID_ARGUMENT naming `name` if an extent is 0.
absl::StatusOr<std::unique_ptr<RowSource>> MakeArrayRows(Array array, const std::string& name,
                                                         float input_scale);

// Rows of different lengths: row i has the values from row_splits[i] to row_splits[i + 1]. INVALID_ARGUMENT naming
// `name` unless `values` is [all values] of integers, and `row_splits` [examples + 1] ascends from 0 to their
// number. An example may not be empty.
absl::StatusOr<std::unique_ptr<RowSource>> MakeRaggedRows(Array values, const Array& row_splits,
                                                          const std::string& name);

// Row i is the concatenation of row i of each of `parts`, flattened: the inputs of a model with several
// inputs. INVALID_ARGUMENT naming two of `names` [parts] if their row counts differ.
absl::StatusOr<std::unique_ptr<RowSource>> JoinRows(std::vector<std::unique_ptr<RowSource>> parts,
                                                    const std::vector<std::string>& names);

}  // namespace cairn::data
