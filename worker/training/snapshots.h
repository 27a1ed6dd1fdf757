// The chief's snapshots in --train_dir: written by the thread of a SnapshotSaver, and restored to servers that
// have no state or lost it.
//
// Created by WorkerTask on the chief, used by the trainer's thread, destroyed before the client.
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
#include "client/table_states.h"
#include "client/training/job_control.h"
#include "client/training/snapshot_saver.h"
#include "common/core/clock.h"
#include "common/net/cluster/placement.h"
#include "common/system/fault_points.h"
#include "common/trace/trace.h"
#include "nn/model.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/train_dir_lock.h"
#include "worker/embedding/table_plan.h"
#include "worker/embedding/trained_tables.h"
#include "worker/export/weights.h"
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
    // The model of the inputs and its tables; null: the job has no embedding tables.
    const nn::Model* described = nullptr;
    const TablePlan* tables = nullptr;
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
  absl::StatusOr<std::unique_ptr<client::TableSource>> OpenTables(const v1::Job& job) override;

  // Takes snapshots by --save_steps and --save_secs, and writes them to --train_dir. Failures are logged. Null
  // without --train_dir.
  client::SnapshotSaver* saver() { return saver_.has_value() ? &*saver_ : nullptr; }

 private:
  explicit Snapshots(const Args& args);
  absl::Status FindFirst();
  // The values of --init_from or of the model file, in `source`.
  absl::StatusOr<InitialWeights> LoadInitial(const std::string& source) const;
  // Checks that they can be read, so that the job does not fail later.
  absl::Status CheckInitialValues() const;
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
  // The saver's thread: reads the snapshot and writes a checkpoint, and logs and counts the result.
  absl::Status Save(const client::TakenSnapshot& taken) const;
  absl::Status Write(const client::TakenSnapshot& taken) const;

  const TrainOptions& options_;
  const nn::Model& model_;
  const v1::Job& job_;
  const nn::Model* const described_;
  const TablePlan* const tables_;
  FaultPoints* const faults_;
  WorkerMetrics* const metrics_;
  TraceRecorder* const trace_;
  const std::vector<net::VariableInfo> variables_;
  std::optional<TrainDirLock> lock_;  // with --train_dir; set by Create()

  // Used only by the trainer's thread.
  std::optional<Checkpoint> found_;
  std::vector<TrainedTable> initial_tables_;  // from Load() to OpenTables(), of a new job with initial values
  std::optional<client::SnapshotSaver> saver_;  // with --train_dir; last, because its thread uses the rest
};

}  // namespace cairn::worker
