// One chief at a time writes to a --train_dir: <train_dir>/lock, locked while the process lives. The system
// gives the lock back when the process ends, however it does.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/core/clock.h"

namespace cairn::worker {

class TrainDirLock {
 public:
  // Makes the directory's lock file where it is missing, and waits up to `limit` for who holds it, as one
  // that is about to end. UNAVAILABLE telling who that is; INVALID_ARGUMENT with the system's reason. Where
  // the file system knows no locks, a warning is said and there is none.
  static absl::StatusOr<TrainDirLock> Take(const std::string& train_dir, Duration limit);

  ~TrainDirLock();
  TrainDirLock(TrainDirLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  TrainDirLock& operator=(TrainDirLock&&) = delete;

 private:
  explicit TrainDirLock(int file) : file_(file) {}
  int file_;  // -1: none
};

}  // namespace cairn::worker
