// The chief's snapshots: taken between two steps, written to --train_dir by a separate thread, and restored
// to servers that have no state or lost it.
//
// Created by WorkerTask on the chief, used by the trainer's thread, destroyed before the client. The servers
// preserve the state of a snapshot while updates continue, so training waits only for the call that takes it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/job_setup.h"
#include "client/training/job_control.h"
#include "client/training/snapshot_saver.h"
#include "common/core/clock.h"
#include "common/net/cluster/placement.h"
#include "common/system/fault_points.h"
#include "common/trace/trace.h"
#include "nn/model.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/train_dir_lock.h"
#include "worker/options/options.h"
#include "worker/report/metrics.h"

namespace cairn::worker {

class Snapshots final : public client::StateSource {
 public:
  // All of it must outlive the object.
  struct Args {
    const TrainOptions& options;
    const nn::Model& model;
    const v1::Job& job;
    const Clock& clock;
    FaultPoints* faults = nullptr;  // may be null; passes "snapshot" between reading and writing a snapshot
    WorkerMetrics* metrics = nullptr;  // may be null; counts saved checkpoints
    TraceRecorder* trace = nullptr;    // may be null; records durations
  };
  // Checks --train_dir and --resume against the disk. INVALID_ARGUMENT: --resume=never with a directory that
  // has checkpoints; a directory that is not writable; --resume=DIR without a checkpoint. UNAVAILABLE:
  // another chief uses the directory and did not end within 10 s. FAILED_PRECONDITION: the checkpoint to
  // resume has another model or optimizer than the job. DATA_LOSS: every checkpoint is damaged.
  static absl::StatusOr<std::unique_ptr<Snapshots>> Create(const Args& args);
  // Waits for the snapshot that is being written, if there is one.
  ~Snapshots() override;

  // --- The trainer's thread ---

  // client::StateSource: the newest undamaged checkpoint of --train_dir, else the checkpoint that --resume
  // names, else the model's initial values. ABORTED if `lost` is set and there is no --train_dir, since the
  // lost progress cannot be restored.
  absl::StatusOr<std::optional<v1::Progress>> Find(bool lost) override;
  absl::Status Load(absl::Span<const std::string> slots, absl::Span<const absl::Span<float>> into) override;

  // Sets the version at which training begins, from which --save_steps counts. Later calls have no effect.
  void CountFrom(int64_t version);
  // Takes a snapshot if one is due by --save_steps or --save_secs and the previous one has been written.
  // Failures are logged, and a later step tries again. `version`: the current one.
  void AfterStep(client::JobControl& control, int64_t version);
  // Takes a snapshot now, unless `version`, the current one, is saved already, and waits up to `limit` until
  // it is on the disk. OK without --train_dir.
  absl::Status SaveNow(client::JobControl& control, int64_t version, Duration limit);
  // The version of the newest snapshot; -1: none.
  int64_t newest_version() const { return saver_.has_value() ? saver_->newest_version() : -1; }

 private:
  explicit Snapshots(const Args& args);
  absl::Status FindFirst();
  absl::Status CheckSame(const Checkpoint& checkpoint) const;
  v1::Progress ProgressOf(const Checkpoint& checkpoint) const;
  // The length of one epoch, with static sharding.
  struct Epochs {
    int64_t steps;    // versions
    int64_t batches;  // batches of each worker
  };
  // The length of an epoch in the run that wrote a checkpoint. Nullopt if it equals that of this job, or with
  // dynamic sharding.
  std::optional<Epochs> EpochsBefore(const RunState& run) const;
  // Sets the position in `progress` to the checkpoint's position, converted to this job's epochs.
  void SetPosition(const RunState& run, v1::Progress& progress) const;
  bool Due(int64_t version) const;
  // The saver's thread: reads the snapshot and writes a checkpoint, and logs and counts the result.
  absl::Status Save(const client::TakenSnapshot& taken) const;
  absl::Status Write(const client::TakenSnapshot& taken) const;

  const TrainOptions& options_;
  const nn::Model& model_;
  const v1::Job& job_;
  const Clock& clock_;
  FaultPoints* const faults_;
  WorkerMetrics* const metrics_;
  TraceRecorder* const trace_;
  const std::vector<net::VariableInfo> variables_;
  std::optional<TrainDirLock> lock_;  // with --train_dir; set by Create()

  // Used only by the trainer's thread.
  std::optional<Checkpoint> found_;
  int64_t counted_version_ = -1;                // --save_steps and --save_secs count from here
  TimePoint taken_at_;                          // when the newest snapshot was taken
  std::optional<client::SnapshotSaver> saver_;  // with --train_dir; last, because its thread uses the rest
};

}  // namespace cairn::worker
