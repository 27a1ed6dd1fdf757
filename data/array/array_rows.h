// Rows of arrays, in the element type of their file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/array.h"
#include "data/dataset.h"
#include "data/row_source.h"

namespace cairn::data {

// Rows of `array` [examples, ...]; an array of [examples] has rows of one number. Numbers that are read as floats are
// scaled as DataOptions::input_scale describes. INVALID_ARGUMENT naming `name` if an extent is 0.
absl::StatusOr<std::unique_ptr<RowSource>> MakeArrayRows(Array array, const std::string& name,
                                                         float input_scale);

// The row splits [examples + 1] in `array` of the rows of `values`. INVALID_ARGUMENT naming `name` unless `values` is
// [all values], of integers if the input takes `integers`, and the splits ascend from 0 to their number.
absl::StatusOr<std::vector<int64_t>> ReadRowSplits(const Array& array, const Array& values, bool integers,
                                                   const std::string& name);

// INVALID_ARGUMENT, naming two of `names` [input], if an example has other numbers of weights than of ids. `splits`
// [input] row splits; empty for inputs that are not ragged.
absl::Status CheckSameSplits(const DataOptions& options, const std::vector<std::vector<int64_t>>& splits,
                             const std::vector<std::string>& names);

// Rows of different lengths, which may be 0: row i has the values from row_splits[i] to row_splits[i + 1]. The
// arguments are as ReadRowSplits() checks them.
std::unique_ptr<RowSource> MakeRaggedRows(Array values, std::vector<int64_t> row_splits,
                                          const std::string& name);

// Row i is the concatenation of row i of each of `parts`, flattened: the inputs of a model with several
// inputs. INVALID_ARGUMENT naming two of `names` [parts] if their row counts differ.
absl::StatusOr<std::unique_ptr<RowSource>> JoinRows(std::vector<std::unique_ptr<RowSource>> parts,
                                                    const std::vector<std::string>& names);

}  // namespace cairn::data
