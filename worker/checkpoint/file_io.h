// Files written front to back and read from anywhere, without a buffer of their own: what goes through is the
// caller's memory. Errors name the path and the system's reason.
//
// Each object is of one thread; movable, closes itself.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::worker {

// zlib's crc32 of what `crc` is of and then `bytes`; 0: of nothing.
uint32_t Crc32(uint32_t crc, absl::string_view bytes);

// The memory of `values`: little-endian, like the files.
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
  // Empties what is there.
  static absl::StatusOr<OutputFile> Create(const std::string& path);

  // Appends `bytes`. `crc`, where given, goes on over them.
  absl::Status Write(absl::string_view bytes, uint32_t* crc = nullptr);
  // What was written is on the disk.
  absl::Status Sync();
  uint64_t written() const { return written_; }

 private:
  OutputFile(FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  FileDescriptor fd_;
  std::string path_;
  uint64_t written_ = 0;
};

class InputFile {
 public:
  // NOT_FOUND; PERMISSION_DENIED; DATA_LOSS for what is no plain file.
  static absl::StatusOr<InputFile> Open(const std::string& path);

  uint64_t size() const { return size_; }  // bytes, when it was opened
  const std::string& path() const { return path_; }

  // Fills `into` with the bytes from `offset` on, and adds them to `crc`. DATA_LOSS where the file ends
  // before.
  absl::Status ReadAt(uint64_t offset, absl::Span<char> into, uint32_t& crc) const;

 private:
  InputFile(FileDescriptor fd, std::string path, uint64_t size)
      : fd_(std::move(fd)), path_(std::move(path)), size_(size) {}
  FileDescriptor fd_;
  std::string path_;
  uint64_t size_;
};

// The whole file. DATA_LOSS when it has more than `max_bytes`; otherwise InputFile's errors.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, uint64_t max_bytes);

// What was made, renamed or removed in the directory is on the disk.
absl::Status SyncDirectory(const std::string& path);

// `what` path: the reason in errno.
absl::Status ErrnoStatus(absl::string_view what, const std::string& path);

}  // namespace cairn::worker
