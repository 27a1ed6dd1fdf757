// Which fields of Criteo's lines each input of the model takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/columns.h"
#include "data/criteo/criteo_line.h"
#include "data/dataset.h"
#include "data/row_source.h"

namespace cairn::data {

// Adjacent fields of one kind for one input.
struct CriteoInput {
  std::vector<int> fields{};      // 0: the label, 1: I1, 14: C1
  bool categories = false;        // ids, or else numbers
  int64_t table_rows = 0;         // ids are hashed to [0, table_rows); 0: they are CriteoId()
  std::vector<uint64_t> salts{};  // [field] of the hash
  Scale scale{};                  // of numbers
};

// The inputs in the model's order. If options.feature_columns or options.trained_columns name fields, inputs take them
// one after the other. Otherwise an input with the name of a field takes that field; other inputs of integers take C1
// to C26, and those of floats I1 to I13. INVALID_ARGUMENT, naming the input, if its shape or type does not suit its
// fields, and for options that Criteo's files do not have.
absl::StatusOr<std::vector<CriteoInput>> MakeCriteoInputs(const DataOptions& options);

// The columns that `inputs` read.
Columns CriteoColumns(const std::vector<CriteoInput>& inputs);

}  // namespace cairn::data
