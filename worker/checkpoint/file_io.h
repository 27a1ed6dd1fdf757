// Files that are written sequentially and read at any offset, directly from and into the caller's memory.
// Errors name the path and the system's reason.
//
// Each object belongs to one thread; movable; closed by its destructor.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::worker {

// Continues zlib's crc32 over `bytes`. `crc`: the checksum of the preceding bytes; 0 if there are none.
uint32_t Crc32(uint32_t crc, absl::string_view bytes);

// The bytes of `values` in memory, which are little-endian, as in the files.
absl::string_view BytesOf(absl::Span<const float> values);

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }

 private:
  int fd_;  // -1: none
};

class OutputFile {
 public:
  // Truncates an existing file.
  static absl::StatusOr<OutputFile> Create(const std::string& path);

  // Appends `bytes`, and updates `*crc` with them if it is given.
  absl::Status Write(absl::string_view bytes, uint32_t* crc = nullptr);
  // Writes `bytes` from byte `offset` of the file on. Does not change where Write() appends.
  absl::Status WriteAt(uint64_t offset, absl::string_view bytes, uint32_t* crc = nullptr);
  // Returns when everything written is on the disk.
  absl::Status Sync();
  uint64_t written() const { return written_; }  // by Write()

 private:
  OutputFile(FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  FileDescriptor fd_;
  std::string path_;
  uint64_t written_ = 0;
};

class InputFile {
 public:
  // NOT_FOUND; PERMISSION_DENIED; DATA_LOSS if `path` is not a regular file.
  static absl::StatusOr<InputFile> Open(const std::string& path);

  uint64_t size() const { return size_; }  // in bytes, at the time of Open()
  const std::string& path() const { return path_; }

  // Fills `into` with the bytes from `offset` on, and updates `crc` with them. DATA_LOSS if the file ends too
  // early.
  absl::Status ReadAt(uint64_t offset, absl::Span<char> into, uint32_t& crc) const;

 private:
  InputFile(FileDescriptor fd, std::string path, uint64_t size)
      : fd_(std::move(fd)), path_(std::move(path)), size_(size) {}
  FileDescriptor fd_;
  std::string path_;
  uint64_t size_;
};

// Calls write(temporary), which makes a complete file of that name, and renames it to `path`: readers see the old file
// or the new one. Removes the temporary file if that fails.
absl::Status WriteByRename(const std::string& path,
                           absl::FunctionRef<absl::Status(const std::string& temporary)> write);

// Reads a whole file. DATA_LOSS if it has more than `max_bytes`; otherwise InputFile's errors.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, uint64_t max_bytes);

// Returns when the directory's entries (files created, renamed or removed) are on the disk.
absl::Status SyncDirectory(const std::string& path);

// An error made of `what`, the path and the reason in errno.
absl::Status ErrnoStatus(absl::string_view what, const std::string& path);

}  // namespace cairn::worker
