// Embedding tables in exported .safetensors files: a table of fixed size is a variable; a dynamic one has ids, rows and
// a description of the first values of other ids (docs/reference/file-formats.md).
//
// Pure functions; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/run_state.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/embedding/trained_tables.h"

namespace cairn::worker {

// The key of a table's description in the metadata of the file.
std::string DescriptionName(const std::string& table);

// Adds the tensors and descriptions of `tables`, which they borrow. Returns memory that they borrow too.
std::vector<std::vector<float>> AddTensors(const TrainedTables& tables, std::vector<NamedTensor>& tensors,
                                           std::map<std::string, std::string>& metadata);

// Reads a description. Name and dim are not set. INVALID_ARGUMENT naming `source`.
absl::StatusOr<TableRun> ParseDescription(const std::string& text, const std::string& source);

}  // namespace cairn::worker
