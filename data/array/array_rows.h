// Rows of arrays, in the element type of their file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/array.h"
#include "data/row_source.h"

namespace cairn::data {

// Rows of `array` [examples, ...]; an array of [examples] has rows of one number. The numbers are scaled as
// DataOptions::input_scale describes. INVALID_ARGUMENT naming `name` if an extent is 0.
absl::StatusOr<std::unique_ptr<RowSource>> MakeArrayRows(Array array, const std::string& name,
                                                         float input_scale);

// Row i is the concatenation of row i of each of `parts`, flattened: the inputs of a model with several
// inputs. INVALID_ARGUMENT naming two of `names` [parts] if their row counts differ.
absl::StatusOr<std::unique_ptr<RowSource>> JoinRows(std::vector<std::unique_ptr<RowSource>> parts,
                                                    const std::vector<std::string>& names);

}  // namespace cairn::data
