#include "common/net/security/local_token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/core/file_descriptor.h"
#include "common/core/status.h"

namespace cairn::net {
namespace {

bool IsOursAlone(const struct stat& file) {
  return file.st_uid == getuid() && (file.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

// Another user may have created the folder in /tmp.
bool IsFolderOfOurs(const std::string& path) {
  struct stat folder{};
  return lstat(path.c_str(), &folder) == 0 && S_ISDIR(folder.st_mode) && IsOursAlone(folder);
}

std::string Folder() {
  const std::string run = absl::StrCat("/run/user/", getuid());
  return IsFolderOfOurs(run) ? absl::StrCat(run, "/cairn") : absl::StrCat("/tmp/cairn-", getuid());
}

std::string PathFor(int port) {
  return absl::StrCat(Folder(), "/", port, ".token");
}

}  // namespace

absl::StatusOr<LocalToken> LocalToken::Publish(int port, absl::string_view token) {
  const std::string folder = Folder(), path = PathFor(port);
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) return absl::ErrnoToStatus(errno, folder);
  if (!IsFolderOfOurs(folder)) {
    return absl::PermissionDeniedError(absl::StrCat(folder, " is not a folder of this user alone"));
  }
  unlink(path.c_str());  // a file left by a killed job
  const FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file.valid()) return absl::ErrnoToStatus(errno, path);
  LocalToken published(path);
  if (write(file.get(), token.data(), token.size()) != static_cast<ssize_t>(token.size())) {
    return absl::ErrnoToStatus(errno, path);
  }
  return published;
}

LocalToken::~LocalToken() {
  if (!path_.empty()) unlink(path_.c_str());
}

void TakeLocalToken(const HostPort& first_server, Access& access) {
  const std::string& host = first_server.host;
  if (access.any() || (host != "localhost" && host != "127.0.0.1" && host != "::1")) return;
  if (!IsFolderOfOurs(Folder())) return;
  const FileDescriptor file(open(PathFor(first_server.port).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat known{};
  if (!file.valid() || fstat(file.get(), &known) != 0 || !S_ISREG(known.st_mode) || !IsOursAlone(known))
    return;
  std::array<char, kMaxTokenCharacters> text{};
  const ssize_t size = read(file.get(), text.data(), text.size());
  if (size > 0) access.token.assign(text.data(), static_cast<size_t>(size));
}

}  // namespace cairn::net
