#include "worker/checkpoint/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "floats are written in memory order");

// The unit of I/O: the checksum of a chunk is computed while the chunk is in the cache.
constexpr size_t kChunkBytes = size_t{1} << 18;

}  // namespace

uint32_t Crc32(uint32_t crc, absl::string_view bytes) {
  return static_cast<uint32_t>(crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

absl::string_view BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

absl::Status ErrnoStatus(absl::string_view what, const std::string& path) {
  return absl::Status(absl::ErrnoToStatusCode(errno),
                      absl::StrCat(what, " ", path, ": ", std::strerror(errno)));
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path) {
  FileDescriptor fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (fd.get() < 0) return ErrnoStatus("cannot create", path);
  return OutputFile(std::move(fd), path);
}

absl::Status OutputFile::Write(absl::string_view bytes, uint32_t* crc) {
  while (!bytes.empty()) {
    const absl::string_view chunk = bytes.substr(0, kChunkBytes);
    const ssize_t put = write(fd_.get(), chunk.data(), chunk.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return ErrnoStatus("cannot write", path_);
    const auto count = static_cast<size_t>(put);
    if (crc != nullptr) *crc = Crc32(*crc, chunk.substr(0, count));
    written_ += count;
    bytes.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::WriteAt(uint64_t offset, absl::string_view bytes, uint32_t* crc) {
  while (!bytes.empty()) {
    const absl::string_view chunk = bytes.substr(0, kChunkBytes);
    const ssize_t put = pwrite(fd_.get(), chunk.data(), chunk.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return ErrnoStatus("cannot write", path_);
    const auto count = static_cast<size_t>(put);
    if (crc != nullptr) *crc = Crc32(*crc, chunk.substr(0, count));
    offset += count;
    bytes.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Sync() {
  if (fsync(fd_.get()) != 0) return ErrnoStatus("cannot write", path_);
  return absl::OkStatus();
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe instead of a file must not block.
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return ErrnoStatus("cannot open", path);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus("cannot open", path);
  if (!S_ISREG(info.st_mode)) return absl::DataLossError(absl::StrCat(path, " is not a regular file"));
  return InputFile(std::move(fd), path, static_cast<uint64_t>(info.st_size));
}

absl::Status InputFile::ReadAt(uint64_t offset, absl::Span<char> into, uint32_t& crc) const {
  while (!into.empty()) {
    const ssize_t got =
        pread(fd_.get(), into.data(), std::min(into.size(), kChunkBytes), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::DataLossError(absl::StrCat("cannot read ", path_, ": ", std::strerror(errno)));
    if (got == 0) {
      return absl::DataLossError(
          absl::StrCat(path_, " ends at byte ", offset, ", ", into.size(), " more were expected"));
    }
    const auto count = static_cast<size_t>(got);
    crc = Crc32(crc, {into.data(), count});
    offset += count;
    into.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status WriteByRename(const std::string& path,
                           absl::FunctionRef<absl::Status(const std::string& temporary)> write) {
  const std::string temporary = absl::StrCat(path, ".tmp-", getpid());
  absl::Status status = write(temporary);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0)
    status = ErrnoStatus("cannot rename to", path);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, uint64_t max_bytes) {
  CAIRN_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.size() > max_bytes) {
    return absl::DataLossError(
        absl::StrCat(path, " has ", file.size(), " bytes, at most ", max_bytes, " were expected"));
  }
  std::string contents(static_cast<size_t>(file.size()), '\0');
  uint32_t crc = 0;
  CAIRN_RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(contents), crc));
  return contents;
}

absl::Status SyncDirectory(const std::string& path) {
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoStatus("cannot open", path);
  // Some network file systems cannot sync directories; they order renames themselves.
  if (fsync(fd.get()) != 0 && errno != EINVAL) return ErrnoStatus("cannot write", path);
  return absl::OkStatus();
}

}  // namespace cairn::worker
