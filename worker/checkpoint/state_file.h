// state.json: the contents of a checkpoint. It is the last file written. Its checksums cover every byte of
// the other files. Its last line is the crc32 of all bytes before that line.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/shape.h"
#include "worker/checkpoint/run_state.h"
#include "worker/checkpoint/safetensors.h"

namespace cairn::worker {

inline constexpr char kStateFile[] = "state.json";
inline constexpr char kModelFile[] = "model.json";

// Rows [row_begin, row_end) of a tensor, stored in one file.
struct TensorEntry {
  std::string name;  // the tensor's name in the file
  Shape shape;       // the shape of the whole tensor
  int64_t row_begin = 0;
  int64_t row_end = 0;
  uint32_t crc32 = 0;  // the checksum of these rows' values
  TensorType type = TensorType::kF32;

  Shape rows_shape() const;  // the shape of these rows
};

struct FileEntry {
  std::string name;  // within the checkpoint's directory
  uint64_t bytes = 0;
  uint64_t head_bytes = 0;  // see safetensors.h
  uint32_t head_crc32 = 0;
  std::vector<TensorEntry> tensors;  // in the order of their values in the file
};

struct StateFile {
  RunState run;
  uint64_t model_bytes = 0;
  uint32_t model_crc32 = 0;
  std::vector<FileEntry> files;
};

// The text of state.json. INVALID_ARGUMENT for strings that are not UTF-8.
absl::StatusOr<std::string> ToText(const StateFile& state);

// DATA_LOSS naming the field for anything that ToText() does not write; FAILED_PRECONDITION for an undamaged
// file with another format number.
absl::StatusOr<StateFile> ParseStateFile(absl::string_view text);

}  // namespace cairn::worker
