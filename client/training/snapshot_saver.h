// Takes a job's snapshots when they are due, one at a time, and saves them in a thread of its own while training
// continues.
//
// The servers preserve the state of a snapshot, so training waits only for the call that takes it. All calls
// come from the thread that makes the steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "client/training/job_control.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/system/thread.h"

namespace cairn::client {

// Calls attempt() until it succeeds, the deadline has passed, or its failure may not be retried. Each attempt takes a
// snapshot and uses it.
absl::Status RetrySnapshot(JobControl& control, TimePoint deadline,
                           absl::FunctionRef<absl::Status()> attempt);

class SnapshotSaver {
 public:
  // Reads and stores a snapshot. Called by the saver's thread, one call at a time.
  using Save = std::function<absl::Status(const TakenSnapshot&)>;
  struct Options {
    // A snapshot is due when this many updates or this much time have passed since the last one. 0: never.
    int64_t every_updates = 0;
    std::chrono::duration<double> every{};
    const Clock& clock;  // must outlive the saver
    Save save;
    // Receives the error if a snapshot that is due cannot be taken.
    std::function<void(const absl::Status&)> report;
    StopCheck stopped{};  // ends SaveNow() and AwaitIdle(); a snapshot that is being saved is saved
  };
  explicit SnapshotSaver(Options options);
  // Waits for the snapshot that is being saved, if there is one.
  ~SnapshotSaver();

  // Sets the version at which training begins, from which updates count. Later calls have no effect.
  void CountFrom(int64_t version);
  // Takes a snapshot if one is due and the previous one has been saved. After a failure, a later step tries
  // again. `version`: the current one. `control` must exist until the snapshot has been saved.
  void AfterStep(JobControl& control, int64_t version) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes a snapshot, unless that of `version`, the current one, is saved already, and waits up to `limit`
  // until it is saved. Takes another one if a server with the first one failed and has a backup.
  absl::Status SaveNow(JobControl& control, int64_t version, Duration limit) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until no snapshot is being saved. DEADLINE_EXCEEDED if one is still being saved at the deadline.
  absl::Status AwaitIdle(TimePoint deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // The version of the newest snapshot; -1: none.
  int64_t newest_version() const { return newest_version_; }

 private:
  bool Due(int64_t version) const;
  bool busy() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes a snapshot, to be saved by the thread, which must not be busy.
  absl::Status Take(JobControl& control, const StopCheck& stopped) ABSL_LOCKS_EXCLUDED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the result of the newest snapshot, which is waited for as AwaitIdle() does.
  absl::Status AwaitSaved(TimePoint deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;

  // Used by the caller's thread only.
  int64_t newest_version_ = -1;
  int64_t counted_version_ = -1;  // updates count from here
  TimePoint taken_at_;            // the time of the last attempt

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<TakenSnapshot> work_ ABSL_GUARDED_BY(mutex_);  // the snapshot being saved
  absl::Status last_ ABSL_GUARDED_BY(mutex_);                  // result of the previous snapshot
  Thread thread_;  // last, so that it starts after everything above exists
};

}  // namespace cairn::client
