// Ensures that only one chief at a time writes to a --train_dir, by a lock on <train_dir>/lock that lasts as
// long as the process. The system releases the lock however the process ends.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/core/clock.h"

namespace cairn::worker {

class TrainDirLock {
 public:
  // Creates the lock file if it is missing, and waits up to `limit` for another process that holds the lock.
  // UNAVAILABLE naming that process if it still holds the lock then; INVALID_ARGUMENT with the system's
  // reason if the file cannot be opened. If the file system does not support locks, logs a warning and
  // returns OK without a lock.
  static absl::StatusOr<TrainDirLock> Take(const std::string& train_dir, Duration limit);

  ~TrainDirLock();
  TrainDirLock(TrainDirLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  TrainDirLock& operator=(TrainDirLock&&) = delete;

 private:
  explicit TrainDirLock(int file) : file_(file) {}
  int file_;  // -1: none
};

// Prepares a directory in which a chief writes: creates it if it is missing, checks that it is writable, and
// takes its lock, for which a previous chief has 10 s to end. INVALID_ARGUMENT if the directory cannot be
// created or written to; errors of TrainDirLock::Take().
absl::StatusOr<TrainDirLock> PrepareTrainDir(const std::string& train_dir);

}  // namespace cairn::worker
