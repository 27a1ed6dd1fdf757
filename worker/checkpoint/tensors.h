// The tensors of a checkpoint: variables and optimizer slots, each of them in one piece or as runs of rows in
// several files. Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "worker/checkpoint/state_file.h"

namespace cairn::worker {

// Rows [row_begin, row_end) of a tensor and their position in the files.
struct TensorRows {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  size_t file = 0;      // index in StateFile::files
  size_t entry = 0;     // index in FileEntry::tensors
  uint64_t offset = 0;  // in bytes from the start of the file
};

struct TensorInfo {
  std::string name;              // the tensor's name in the files
  std::string variable;          // the name of the variable
  std::string slot;              // empty: the variable's values
  Shape shape;                   // the shape of the whole tensor
  std::vector<TensorRows> rows;  // by increasing row_begin
  TensorType type = TensorType::kF32;
  bool of_table = false;  // of a table beside the variables, whose `variable` is the name without the slot

  uint64_t bytes() const { return static_cast<uint64_t>(shape.num_elements() * BytesPerElement(type)); }
};

// The name in the files: the variable's name, or "slot/<slot>/<variable>" for a slot.
std::string TensorName(absl::string_view variable, absl::string_view slot);

// The tensors of a table: the ids of its rows, their values, and each slot. The first extent of all of them is the
// number of rows.
std::string IdsName(absl::string_view table);                           // "table/<table>/ids"
std::string RowsName(absl::string_view table);                          // "table/<table>/rows"
std::string SlotName(absl::string_view table, absl::string_view slot);  // "table/<table>/slot/<slot>"

// Whether `name` is that of a tensor of one of the run's tables.
bool IsOfTable(absl::string_view name, const RunState& run);

// All tensors of `state`: the variables, sorted by name, then the tensors of each slot, in the order of
// run.slots, then those of the tables, sorted by name. Does not set TensorRows::offset.
// FAILED_PRECONDITION naming the tensor, and both shapes or types, if two files disagree.
absl::StatusOr<std::vector<TensorInfo>> MergeTensors(const StateFile& state);

// The head of the file with the tensors of `file`, with the metadata by which torch.distributed.checkpoint reads
// tensors whose rows are in several files. SafetensorsHead()'s errors.
absl::StatusOr<std::string> HeadOf(const FileEntry& file);

// FAILED_PRECONDITION naming the tensor and both row numbers if `tensor.rows` have gaps or overlap.
absl::Status CheckRows(const TensorInfo& tensor);

}  // namespace cairn::worker
