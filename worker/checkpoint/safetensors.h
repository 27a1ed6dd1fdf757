// Tensors of float32 and int64 as a .safetensors file (github.com/huggingface/safetensors): the length of the header (8
// bytes, little-endian); the header (JSON, padded with spaces to a multiple of 8); the values
// (little-endian).
//
// In this code, the head of a file is everything before the values: length and header. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"

namespace cairn::worker {

enum class TensorType { kF32, kI64 };

// "F32": the format's name of the type.
absl::string_view NameOf(TensorType type);
int64_t BytesPerElement(TensorType type);

// A tensor to write.
struct NamedTensor {
  std::string name;
  Shape shape;
  absl::Span<const float> values{};  // [shape]; of int64: the memory of the numbers, two floats each
  TensorType type = TensorType::kF32;
  // Not null: passes the bytes in place of `values`, in pieces, and returns the first error of `write`.
  std::function<absl::Status(absl::FunctionRef<absl::Status(absl::string_view piece)> write)> contents{};
};

// The head of a file with `tensors` one after another, in this order. `metadata` is written unchanged.
// INVALID_ARGUMENT naming the tensor if its name occurs twice, is "__metadata__" or is not UTF-8.
absl::StatusOr<std::string> SafetensorsHead(absl::Span<const NamedTensor> tensors,
                                            const std::map<std::string, std::string>& metadata);

// Writes the whole file under a temporary name, then renames it to `path`: readers see the old file or the
// new one.
absl::Status WriteSafetensors(const std::string& path, absl::Span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata);

// A tensor in a file that is read.
struct StoredTensor {
  std::string name;
  Shape shape;
  uint64_t offset = 0;  // in bytes from the start of the file
  TensorType type = TensorType::kF32;
};

struct SafetensorsFile {
  std::vector<StoredTensor> tensors;  // in the order of their values in the file
  std::map<std::string, std::string> metadata;
};

// The maximum length of a header, the same as in the format's reference implementation.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

// Parses the head of a file of `file_bytes` bytes; nothing in it is trusted. DATA_LOSS naming the tensor if
// it violates the format: the values must leave no gap, must not overlap, and must end at the end of the
// file. FAILED_PRECONDITION for values of a type other than F32 and I64.
absl::StatusOr<SafetensorsFile> ParseSafetensorsHead(absl::string_view head, uint64_t file_bytes);

}  // namespace cairn::worker
