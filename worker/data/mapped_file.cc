#include "worker/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace cairn::data {
namespace {

absl::StatusOr<absl::Span<const uint8_t>> Map(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError("is not a regular file");
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return absl::Span<const uint8_t>();
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) return absl::ErrnoToStatus(errno, "cannot be mapped");
  return absl::MakeConstSpan(static_cast<const uint8_t*>(address), size);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot be opened");
  const auto bytes = Map(fd);
  close(fd);  // the mapping keeps the file
  if (!bytes.ok()) return bytes.status();
  return std::shared_ptr<const MappedFile>(new MappedFile(*bytes));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace cairn::data
