#include "common/core/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

absl::Status SystemError(absl::string_view what, const std::string& path) {
  return absl::Status(absl::ErrnoToStatusCode(errno),
                      absl::StrCat(what, " ", path, ": ", std::strerror(errno)));
}

std::string SiblingOf(const std::string& path) {
  return absl::StrCat(path, ".tmp-", getpid());
}

// Whether the path is a device, a pipe or a socket. A rename would replace it, which the user did not intend.
bool IsSpecialFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

// Opens the file without waiting for the reader of a pipe. ENXIO if the pipe has no reader.
int OpenSpecialFile(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return fd;
}

bool WriteAll(int fd, absl::string_view contents) {
  while (!contents.empty()) {
    const ssize_t put = write(fd, contents.data(), contents.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    contents.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

absl::Status WriteSpecialFile(const std::string& path, absl::string_view contents) {
  const int fd = OpenSpecialFile(path);
  if (fd < 0) return SystemError("cannot open", path);
  const absl::Status status = WriteAll(fd, contents) ? absl::OkStatus() : SystemError("cannot write", path);
  close(fd);
  return status;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  // O_NONBLOCK: opening a FIFO would wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return SystemError("cannot open", path);
  struct stat info;
  if (fstat(fd, &info) != 0 || !(S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": is not a regular file"));
  }
  std::string contents;
  char chunk[1 << 16];
  for (;;) {
    const ssize_t got = read(fd, chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const absl::Status status = SystemError("cannot read", path);
      close(fd);
      return status;
    }
    if (got == 0) break;
    contents.append(chunk, static_cast<size_t>(got));
  }
  close(fd);
  return contents;
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents) {
  if (IsSpecialFile(path)) return WriteSpecialFile(path, contents);
  const std::string temporary = SiblingOf(path);
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return SystemError("cannot create", temporary);
  absl::Status status;
  if (!WriteAll(fd, contents) || fsync(fd) != 0) status = SystemError("cannot write", temporary);
  close(fd);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = SystemError("cannot rename to", path);
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::Status CheckWritable(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    return SystemError("cannot write", path);
  }
  if (IsSpecialFile(path)) {  // opening and closing a pipe would show its reader the end of the file
    return access(path.c_str(), W_OK) == 0 ? absl::OkStatus() : SystemError("cannot open", path);
  }
  const std::string sibling = SiblingOf(path);
  const int fd = open(sibling.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return SystemError("cannot create", sibling);
  close(fd);
  unlink(sibling.c_str());
  return absl::OkStatus();
}

bool FileExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

}  // namespace cairn
