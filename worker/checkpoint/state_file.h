// state.json: what a checkpoint consists of, and what is written of it last. Its checksums guard every byte
// of the other files, and the last line guards the file itself: crc32 of all bytes before it.
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

namespace cairn::worker {

inline constexpr char kStateFile[] = "state.json";
inline constexpr char kModelFile[] = "model.json";

// Rows [row_begin, row_end) of a tensor, as one file holds them.
struct TensorEntry {
  std::string name;  // as in the file
  Shape shape;       // of the whole tensor
  int64_t row_begin = 0;
  int64_t row_end = 0;
  uint32_t crc32 = 0;  // of the values

  Shape rows_shape() const;  // of these rows
};

struct FileEntry {
  std::string name;  // in the checkpoint's directory
  uint64_t bytes = 0;
  uint64_t head_bytes = 0;  // see safetensors.h
  uint32_t head_crc32 = 0;
  std::vector<TensorEntry> tensors;  // in the order of their values
};

struct StateFile {
  RunState run;
  uint64_t model_bytes = 0;
  uint32_t model_crc32 = 0;
  std::vector<FileEntry> files;
};

// INVALID_ARGUMENT for text that is no UTF-8.
absl::StatusOr<std::string> ToText(const StateFile& state);

// DATA_LOSS naming the field for anything that ToText() does not write; FAILED_PRECONDITION for a whole file
// of another format's number.
absl::StatusOr<StateFile> ParseStateFile(absl::string_view text);

}  // namespace cairn::worker
