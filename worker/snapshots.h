// The chief's snapshots: taken between two steps, read and written to --train_dir by a thread of their own,
// and given back to servers that have none or have lost theirs.
//
// Made by the chief's main, used by the trainer's thread, destroyed before the client that it read from; the
// servers keep what a snapshot is of while updates go on, so training waits for nothing but a call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/clock.h"
#include "common/core/fault_points.h"
#include "common/core/mutex.h"
#include "common/core/thread.h"
#include "common/core/trace.h"
#include "common/net/placement.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/train_dir_lock.h"
#include "worker/client/exchange.h"
#include "worker/meters.h"
#include "worker/nn/model.h"
#include "worker/options.h"

namespace cairn::worker {

class Snapshots final : public client::StateSource {
 public:
  // What --train_dir and --resume say, as far as the disk can tell. INVALID_ARGUMENT: with --resume=never a
  // directory that has checkpoints; a directory that cannot be written; --resume=DIR where there is none.
  // UNAVAILABLE: another chief writes there, after waiting for its end for 10 s.
  // FAILED_PRECONDITION: what would be resumed is of another model or optimizer than `job`; DATA_LOSS: all of
  // it is damaged. The arguments outlive this; `faults`, which may be null, passes "snapshot" when one has
  // been read and is not written; `meters`, likewise, counts what is saved; `trace`, likewise, has the times.
  static absl::StatusOr<std::unique_ptr<Snapshots>> Create(const TrainOptions& options,
                                                           const nn::Model& model, const v1::Job& job,
                                                           const Clock& clock, FaultPoints* faults = nullptr,
                                                           WorkerMeters* meters = nullptr,
                                                           TraceRecorder* trace = nullptr);
  // Waits for the one being written, if any.
  ~Snapshots() override;

  // --- The trainer's thread ---

  // client::StateSource: the newest good checkpoint of --train_dir, else what --resume names, else the
  // model's first values. Without --train_dir nothing that was lost can be given back: ABORTED.
  absl::StatusOr<std::optional<v1::Progress>> Find(bool lost) override;
  absl::Status Load(absl::Span<const std::string> slots, absl::Span<const absl::Span<float>> into) override;

  // The version at which training begins, from which --save_steps counts. Only the first call has an effect.
  void CountFrom(int64_t version);
  // Takes a snapshot when one is due by --save_steps or --save_secs and the one before has been written. What
  // fails is said and tried again later.
  void AfterStep(client::Exchange& client);
  // Takes one now, unless this version is saved, and waits until it is on the disk, at most for `limit`. OK
  // without --train_dir.
  absl::Status SaveNow(client::Exchange& client, Duration limit);
  // Of the newest snapshot taken; -1: none.
  int64_t newest_version() const { return newest_version_; }

 private:
  Snapshots(const TrainOptions& options, const nn::Model& model, const v1::Job& job, const Clock& clock,
            FaultPoints* faults, WorkerMeters* meters, TraceRecorder* trace);
  absl::Status FindFirst();
  absl::Status CheckSame(const Checkpoint& checkpoint) const;
  v1::Progress ProgressOf(const Checkpoint& checkpoint) const;
  // The length of one epoch, with static sharding.
  struct Epochs {
    int64_t steps;    // versions
    int64_t batches;  // of each worker
  };
  // Those of the run that wrote a checkpoint; none if they equal this job's, or with dynamic sharding.
  std::optional<Epochs> EpochsBefore(const RunState& run) const;
  // Sets `progress` to the checkpoint's position in this job's epochs.
  void SetPosition(const RunState& run, v1::Progress& progress) const;
  bool Due(int64_t version) const;
  absl::Status Mark(client::Exchange& client) ABSL_LOCKS_EXCLUDED(mutex_);
  void Run();
  absl::Status Save(const client::TakenSnapshot& taken) const;

  const TrainOptions& options_;
  const nn::Model& model_;
  const v1::Job& job_;
  const Clock& clock_;
  FaultPoints* const faults_;
  WorkerMeters* const meters_;
  TraceRecorder* const trace_;
  const std::vector<net::VariableInfo> variables_;
  std::optional<TrainDirLock> lock_;  // with --train_dir; set by Create()

  // The trainer's thread.
  std::optional<Checkpoint> found_;
  int64_t counted_version_ = -1;  // --save_steps and --save_secs count from here
  int64_t newest_version_ = -1;
  TimePoint marked_at_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<client::TakenSnapshot> work_ ABSL_GUARDED_BY(mutex_);  // being read and written
  absl::Status last_ ABSL_GUARDED_BY(mutex_);                          // what the one before came to
  Thread thread_;  // last: everything above exists when it starts
};

}  // namespace cairn::worker
