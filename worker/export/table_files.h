// Embedding tables in exported .safetensors files: a table of fixed size is a variable; a dynamic one has ids, rows and
// a description of the first values of other ids (docs/reference/file-formats.md).
//
// Any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/run_state.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/embedding/table_rows.h"

namespace cairn::worker {

// The key of a table's description in the metadata of the file.
std::string DescriptionName(const std::string& table);
// The table whose description has this key; empty: none.
std::string TableOfDescription(const std::string& key);
// The first values of rows that the file lacks and, unless it takes any id, the number of the table's rows.
std::string DescriptionOf(const TableRun& table);

// Writes the file, with the tensors and descriptions of the tables after `tensors`, as WriteSafetensors() does. Needs
// the memory of a batch of rows; but if `path` is not a regular file, of all tables.
absl::Status WriteWithTables(const std::string& path, const std::vector<NamedTensor>& tensors,
                             const std::map<std::string, std::string>& metadata, const TableRows& tables);

// Adds the ids, the rows and the description of one table of a checkpoint, also of one of fixed size. The tensors read
// their contents from it in batches: it must outlive them. VisitRows()'s errors.
absl::Status AddRows(const Checkpoint& checkpoint, const TableRun& table, std::vector<NamedTensor>& tensors,
                     std::map<std::string, std::string>& metadata);

// Reads a description. Name and dim are not set, and the vocabulary is 0 for any id. INVALID_ARGUMENT naming `source`.
absl::StatusOr<TableRun> ParseDescription(const std::string& text, const std::string& source);

}  // namespace cairn::worker
