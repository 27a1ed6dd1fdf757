// The tensors of a checkpoint: variables and optimizer slots, each whole or as runs of rows in several files.
// Values; any thread.
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

// Rows [row_begin, row_end) and where they lie.
struct TensorRows {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  size_t file = 0;      // of StateFile::files
  size_t entry = 0;     // of FileEntry::tensors
  uint64_t offset = 0;  // bytes, in the file
};

struct TensorInfo {
  std::string name;              // in the files
  std::string variable;          // the variable's name
  std::string slot;              // empty: its values
  Shape shape;                   // of the whole
  std::vector<TensorRows> rows;  // by rising row_begin

  uint64_t bytes() const { return static_cast<uint64_t>(shape.num_elements()) * sizeof(float); }
};

// A variable's name; for a slot "slot/<slot>/<variable>".
std::string TensorName(absl::string_view variable, absl::string_view slot);

// All tensors of `state`: the variables by name, then each slot's, in the order of run.slots.
// TensorRows::offset is left 0. FAILED_PRECONDITION naming the tensor and both shapes where two files differ.
absl::StatusOr<std::vector<TensorInfo>> MergeTensors(const StateFile& state);

// FAILED_PRECONDITION naming the tensor and both row numbers where `tensor.rows` leave rows out or hold some
// twice.
absl::Status CheckRows(const TensorInfo& tensor);

}  // namespace cairn::worker
