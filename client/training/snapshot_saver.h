// Takes a job's snapshots, and saves them in a thread of its own while training continues.
//
// The servers preserve the state of a snapshot, so training waits only for the call that takes it. All calls
// come from the thread that makes the steps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "client/training/job_control.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/system/thread.h"

namespace cairn::client {

class SnapshotSaver {
 public:
  // Reads and stores a snapshot. Called by the saver's thread, one call at a time.
  using Save = std::function<absl::Status(const TakenSnapshot&)>;
  explicit SnapshotSaver(Save save);
  // Waits for the snapshot that is being saved, if there is one.
  ~SnapshotSaver();

  // Whether a snapshot is being saved.
  bool busy() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes a snapshot, to be saved by the thread. To be called only while it is not busy. `control` must exist
  // until the snapshot has been saved.
  absl::Status Take(JobControl& control) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes a snapshot, unless that of `version`, the current one, is saved already, and waits up to `limit`
  // until it is saved. Takes another one if a server with the first one failed and has a backup.
  absl::Status TakeAndWait(JobControl& control, int64_t version, Duration limit) ABSL_LOCKS_EXCLUDED(mutex_);
  // The version of the newest snapshot; -1: none.
  int64_t newest_version() const { return newest_version_; }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the result of the newest snapshot.
  absl::Status AwaitSaved(TimePoint deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  const Save save_;
  int64_t newest_version_ = -1;  // used by the caller's thread only

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<TakenSnapshot> work_ ABSL_GUARDED_BY(mutex_);  // the snapshot being saved
  absl::Status last_ ABSL_GUARDED_BY(mutex_);                  // result of the previous snapshot
  Thread thread_;  // last, so that it starts after everything above exists
};

}  // namespace cairn::client
