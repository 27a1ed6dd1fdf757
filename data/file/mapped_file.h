// A file's bytes, mapped from the page cache: nothing is copied, and unread parts take no memory.
//
// The file must not change while it is mapped. If it is truncated, a thread that reads the missing part gets
// SIGBUS, which ends the process: see ExplainTruncatedFiles().
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::data {

// Immutable; read from any thread.
class MappedFile {
 public:
  // Only regular files: others are INVALID_ARGUMENT, and opening a FIFO does not block. NOT_FOUND or
  // PERMISSION_DENIED with the system's reason. Errors do not name the file; callers add it. The result is
  // shared because arrays and rows keep their file mapped.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  absl::Span<const uint8_t> bytes() const { return bytes_; }
  absl::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  MappedFile(absl::Span<const uint8_t> bytes, const std::string& path);

  const absl::Span<const uint8_t> bytes_;
};

// From now on, a process that reads a mapped file beyond its current end prints the file's name to stderr and
// exits with code 1, instead of dying from SIGBUS without a message. Call it once, in main().
void ExplainTruncatedFiles();

// INVALID_ARGUMENT unless `path` is a regular file, NOT_FOUND if it does not exist. For libraries that open
// files themselves and would block on a FIFO. The error does not name the file.
absl::Status CheckRegularFile(const std::string& path);

}  // namespace cairn::data
