// Rows whose values become ids by the maps of a model's inputs (DataOptions::id_maps).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/row_source.h"

namespace cairn::data {

// `options` for reading files: with the types of the values, before a map makes ids of them.
DataOptions WithTypesInFiles(DataOptions options);

// `rows`, with ids in the place of integers and floats for which the options have maps. Ids of strings are made where a
// format reads the strings. INVALID_ARGUMENT naming `name` if an input takes strings and `has_texts` is false.
absl::StatusOr<std::unique_ptr<RowSource>> MapRows(const DataOptions& options,
                                                   std::unique_ptr<RowSource> rows, const std::string& name,
                                                   bool has_texts);

}  // namespace cairn::data
