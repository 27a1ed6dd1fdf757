#include "client/training/snapshot_saver.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::client {

SnapshotSaver::SnapshotSaver(Options options)
    : options_(std::move(options)),
      taken_at_(options_.clock.Now()),
      thread_("snapshots", [this] { Run(); }) {}

SnapshotSaver::~SnapshotSaver() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.Join();
}

void SnapshotSaver::CountFrom(int64_t version) {
  if (counted_version_ < 0) counted_version_ = version;
}

bool SnapshotSaver::Due(int64_t version) const {
  if (version == counted_version_) return false;
  const int64_t every = options_.every_updates;
  if (every > 0 && version / every != counted_version_ / every) return true;
  return options_.every.count() > 0 && options_.clock.Now() - taken_at_ >= options_.every;
}

bool SnapshotSaver::busy() const {
  MutexLock lock(mutex_);
  return work_.has_value();
}

void SnapshotSaver::AfterStep(JobControl& control, int64_t version) {
  if (!Due(version) || busy()) return;
  const absl::Status status = Take(control, StopCheck());
  if (!status.ok()) options_.report(status);
}

absl::Status SnapshotSaver::Take(JobControl& control, const StopCheck& stopped) {
  taken_at_ = options_.clock.Now();
  CAIRN_ASSIGN_OR_RETURN(TakenSnapshot taken, control.TakeSnapshot(stopped));
  newest_version_ = counted_version_ = taken.version;
  MutexLock lock(mutex_);
  work_ = std::move(taken);
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::Status RetrySnapshot(JobControl& control, TimePoint deadline,
                           absl::FunctionRef<absl::Status()> attempt) {
  for (;;) {
    const absl::Status status = attempt();
    if (status.ok() || std::chrono::steady_clock::now() >= deadline) return status;
    CAIRN_RETURN_IF_ERROR(control.CheckSnapshotMayBeRetried(status));
  }
}

absl::Status SnapshotSaver::AwaitIdle(TimePoint deadline) {
  for (;;) {
    {
      MutexLock lock(mutex_);
      const TimePoint until = options_.stopped ? std::min(deadline, SteadyNow() + kStopCheckEvery) : deadline;
      while (work_.has_value() && changed_.WaitUntil(mutex_, until)) continue;
      if (!work_.has_value()) return absl::OkStatus();
      if (SteadyNow() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("the snapshot of step ", work_->version, " is not written yet"));
      }
    }
    if (options_.stopped && options_.stopped()) return absl::CancelledError("stopped");
  }
}

absl::Status SnapshotSaver::AwaitSaved(TimePoint deadline) {
  CAIRN_RETURN_IF_ERROR(AwaitIdle(deadline));
  MutexLock lock(mutex_);
  return last_;
}

absl::Status SnapshotSaver::SaveNow(JobControl& control, int64_t version, Duration limit) {
  const TimePoint deadline = std::chrono::steady_clock::now() + limit;
  CAIRN_RETURN_IF_ERROR(AwaitIdle(deadline));
  if (version == newest_version_ && AwaitSaved(deadline).ok()) return absl::OkStatus();
  return RetrySnapshot(control, deadline, [&] {
    const absl::Status status = Take(control, options_.stopped);
    return status.ok() ? AwaitSaved(deadline) : status;
  });
}

void SnapshotSaver::Run() {
  for (;;) {
    const TakenSnapshot* work = nullptr;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && !work_.has_value()) {
        changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + std::chrono::seconds(1));
      }
      if (!work_.has_value()) return;
      work = &*work_;  // stays unchanged until it is reset below
    }
    absl::Status status = options_.save(*work);
    MutexLock lock(mutex_);
    last_ = std::move(status);
    work_.reset();
    changed_.NotifyAll();
  }
}

}  // namespace cairn::client
