// The inputs of the model, as libsvm and libffm files provide them.
//
// An input is ragged, or has a fixed number of values: then what an example lacks is 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/libsvm/libsvm_line.h"
#include "data/row_source.h"

namespace cairn::data {

struct LibsvmInput {
  enum class Takes {
    kIndices,  // integers
    kFields,   // integers: the input called `fields`
    kValues,   // floats, in the order of the indices
    kVector,   // floats: the value of index i is element i - 1
  };
  std::string name;
  Takes takes = Takes::kIndices;
  std::optional<int64_t> field{};  // only entries of this field: an input called field_3, or field_3_...
  bool ragged = false;
  int64_t values = 0;      // of an example; of the longest, and at least 1, if it is ragged
  int64_t table_rows = 0;  // indices are hashed to [0, table_rows); 0: they are not
  Scale scale{};           // of floats

  // The number of entries of `line` that the input takes.
  int64_t CountIn(const LibsvmLine& line) const;
  // The index of an entry, hashed if the input has table_rows.
  int64_t IdOf(const LibsvmEntry& entry, bool has_fields) const;
};

// The inputs in the model's order. INVALID_ARGUMENT, naming the option, for options that these files do not have, and
// for a model whose inputs are unknown.
absl::StatusOr<std::vector<LibsvmInput>> MakeLibsvmInputs(const DataOptions& options);

// INVALID_ARGUMENT, naming the input, if `line` does not fit it: too many entries, an index beyond its vector, or no
// fields where it takes those of a field.
absl::Status CheckFits(const LibsvmLine& line, const LibsvmInput& input);

}  // namespace cairn::data
