// A file's bytes where the page cache has them: nothing is copied, and what is not looked at takes no memory.
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
  // NOT_FOUND or PERMISSION_DENIED with the system's reason; only regular files: others are INVALID_ARGUMENT,
  // and a FIFO is not waited for. Errors do not name the file: callers add it. Shared, because arrays and
  // rows keep the file that they lie in.
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

// From now on a process that reads a mapped file beyond its present end says so, by the file's name, to
// stderr and exits with code 1, instead of the bare SIGBUS. Call it once, in main().
void ExplainTruncatedFiles();

// INVALID_ARGUMENT unless `path` is a regular file, NOT_FOUND where there is none; for libraries that open
// files by themselves and would wait for a FIFO's writer. The error does not name the file.
absl::Status CheckRegularFile(const std::string& path);

}  // namespace cairn::data
