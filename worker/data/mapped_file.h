// A file's bytes where the page cache has them: nothing is copied, and what is not looked at takes no memory.
//
// The file must stay as it is while it is mapped: one that is cut short meanwhile ends the process (SIGBUS).
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
  // NOT_FOUND or PERMISSION_DENIED with the system's reason; only regular files. Errors do not name the file:
  // callers add it. Shared, because arrays and rows keep the file that they lie in.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  absl::Span<const uint8_t> bytes() const { return bytes_; }
  absl::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  explicit MappedFile(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  const absl::Span<const uint8_t> bytes_;
};

}  // namespace cairn::data
