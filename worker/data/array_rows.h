// Rows of arrays, in the type of their file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/array.h"
#include "worker/data/row_source.h"

namespace cairn::data {

// Rows of `array` [examples, ...]; single numbers, [examples], are rows of one. Scaled as
// DataOptions::input_scale says. INVALID_ARGUMENT naming `name` where an extent is 0.
absl::StatusOr<std::unique_ptr<RowSource>> MakeArrayRows(Array array, const std::string& name,
                                                         float input_scale);

// Row i is row i of each of `parts`, one behind the other, without their shapes: the inputs of a model that
// has several. INVALID_ARGUMENT naming two of `names` [parts] where they do not have equally many.
absl::StatusOr<std::unique_ptr<RowSource>> JoinRows(std::vector<std::unique_ptr<RowSource>> parts,
                                                    const std::vector<std::string>& names);

}  // namespace cairn::data
