#include "worker/checkpoint/train_dir_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/log.h"

namespace cairn::worker {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);
constexpr auto kPreviousChiefLimit = std::chrono::seconds(10);

// "process 4711 on host0"
std::string ThisProcess() {
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return absl::StrCat("process ", getpid(), " on ", *host == '\0' ? "this host" : host);
}

}  // namespace

absl::StatusOr<TrainDirLock> TrainDirLock::Take(const std::string& train_dir, Duration limit) {
  const std::string path = absl::StrCat(train_dir, "/lock");
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0)
    return absl::InvalidArgumentError(absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
  TrainDirLock lock(file);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) {
      LogWarning(path, " cannot be locked: ", std::strerror(errno),
                 "; make sure that no other chief writes there");
      return lock;
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::UnavailableError(absl::StrCat("another chief writes to '", train_dir,
                                                 "': ", ReadFile(path).value_or("an unknown process"),
                                                 "; end it, or give another directory"));
    }
    std::this_thread::sleep_for(kLook);
  }
  const std::string who = ThisProcess();
  if (ftruncate(file, 0) != 0 || pwrite(file, who.data(), who.size(), 0) != static_cast<ssize_t>(who.size()))
    LogWarning("cannot write to ", path, ": ", std::strerror(errno));
  return lock;
}

TrainDirLock::~TrainDirLock() {
  if (file_ >= 0) close(file_);
}

absl::StatusOr<TrainDirLock> PrepareTrainDir(const std::string& train_dir) {
  std::error_code error;
  std::filesystem::create_directories(train_dir, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("cannot create '", train_dir, "': ", error.message()));
  }
  const absl::Status writable = CheckWritable(absl::StrCat(train_dir, "/checkpoint"));
  if (!writable.ok()) return absl::InvalidArgumentError(writable.message());
  return TrainDirLock::Take(train_dir, kPreviousChiefLimit);
}

}  // namespace cairn::worker
