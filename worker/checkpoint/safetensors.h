// Tensors of float32 as a .safetensors file (github.com/huggingface/safetensors): the header's length in 8
// bytes, little-endian; the header, JSON, filled up with spaces to a multiple of 8; the values,
// little-endian.
//
// The head of a file is both of the first: what stands before the values. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"

namespace cairn::worker {

// One tensor of a file that is to be written.
struct NamedTensor {
  std::string name;
  Shape shape;
  absl::Span<const float> values;  // [shape]
};

// The head of a file with `tensors` one behind the other, in this order. `metadata` goes into it as it is.
// INVALID_ARGUMENT naming the tensor for a name that comes twice, that is "__metadata__" or no UTF-8.
absl::StatusOr<std::string> SafetensorsHead(absl::Span<const NamedTensor> tensors,
                                            const std::map<std::string, std::string>& metadata);

// The whole file under a temporary name, then renamed over `path`: readers see the old file or the new one.
absl::Status WriteSafetensors(const std::string& path, absl::Span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata);

// One tensor of a file that is read.
struct StoredTensor {
  std::string name;
  Shape shape;
  uint64_t offset = 0;  // bytes, from the file's beginning
};

struct SafetensorsFile {
  std::vector<StoredTensor> tensors;  // in the order of their values
  std::map<std::string, std::string> metadata;
};

// What a length of the header may be at most, as the format's own reader has it.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

// Reads the head of a file of `file_bytes`; nothing in it is trusted. DATA_LOSS naming the tensor where it
// breaks the format's rules: the values leave no hole, do not overlap and end with the file. Values of
// another type than F32 are refused with FAILED_PRECONDITION.
absl::StatusOr<SafetensorsFile> ParseSafetensorsHead(absl::string_view head, uint64_t file_bytes);

}  // namespace cairn::worker
