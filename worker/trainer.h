// The training loop. Only this class defines the order of operations in a step.
//
// Created and run by cairn-worker's main thread; Stop() may be called by any other thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/clock.h"
#include "common/core/fault_points.h"
#include "common/core/trace.h"
#include "common/net/data_channel/shared_buffer.h"
#include "worker/callbacks.h"
#include "worker/client/exchange.h"
#include "worker/data/batch_loader.h"
#include "worker/data/dataset.h"
#include "worker/evaluator.h"
#include "worker/metrics.h"
#include "worker/nn/metrics.h"
#include "worker/nn/replica.h"
#include "worker/options.h"
#include "worker/progress.h"
#include "worker/snapshots.h"
#include "worker/summary.h"
#include "worker/tensorboard/tensorboard_writer.h"

namespace cairn::worker {

class Trainer {
 public:
  // Everything here must outlive the trainer.
  struct Dependencies {
    const TrainOptions& options;
    const nn::Model& model;
    const std::vector<nn::MetricSpec>& metrics;
    const data::TrainingData& data;
    const data::SamplerOptions& sampler;
    const v1::Job& job;         // without the run_id
    const std::string& device;  // where the replica computes: "/cpu:0", or "/gpu:0,/gpu:1"
    nn::Replica& replica;
    client::Exchange& client;
    // Null on all workers but the chief.
    Progress* progress;
    Callbacks* callbacks;
    Snapshots* snapshots;
    // On the chief: receives the result before the servers end, so that it exists when a user sees a server
    // exit.
    std::function<absl::Status(const Summary&)> publish;
    TensorBoardWriter* tensorboard = nullptr;  // also null without --train_dir
    WorkerMetrics* live_metrics = nullptr;     // may be null
    const Clock& clock;
    TraceRecorder* trace = nullptr;  // may be null; records each step
    FaultPoints* faults = nullptr;   // may be null; passes "joined", "announced", "computed", "answered"
  };
  explicit Trainer(const Dependencies& deps);
  ~Trainer();

  // Called by the chief before Run(): declares the job to servers that have none, with its initial values or
  // the values of the checkpoint from which it resumes. INVALID_ARGUMENT if a server refuses what flags or
  // model file specify, such as an unknown optimizer.
  absl::Status Initialise();

  // Trains to the end of the job, then leaves it. The chief also evaluates, and ends the servers when all
  // other workers have left. The chief returns a summary of the whole run, the other workers an empty
  // summary. A worker that lost its membership joins again and continues. So does a worker that lost its
  // servers, if the chief can restore their state. CANCELLED after Stop(); the chief first saves a
  // checkpoint. On failure the servers are notified before Run() returns.
  absl::StatusOr<Summary> Run();

  // Makes Run() return soon.
  void Stop();

 private:
  // Pins the buffers that the device copies in every step. A failure only makes the copies slower and is not
  // an error.
  void PinBuffers();
  bool chief() const { return deps_.progress != nullptr; }
  bool sync() const { return deps_.job.mode() == v1::MODE_SYNC; }
  bool dynamic() const { return deps_.job.dynamic_sharding(); }
  bool ssp() const { return deps_.job.mode() == v1::MODE_SSP; }
  // Learns the job and becomes a member, for the first time or again.
  absl::Status Enter();
  absl::Status Reenter();
  absl::StatusOr<Summary> TrainAndRecover();
  absl::StatusOr<Summary> TrainToTheEnd();
  absl::Status TrainStep();
  absl::StatusOr<Summary> WrapUp();
  void Pass(absl::string_view point) const {
    if (deps_.faults != nullptr) deps_.faults->Pass(point);
  }
  // With dynamic sharding: reads the servers' latest answer. Waits until there is a work item, or the job
  // ends.
  absl::Status NoteWork();
  const data::Batch& NextBatch();
  nn::BatchView ViewOf(const data::Batch& batch) const;
  // Called after a step's last gradient was computed and before the answer to the step: computes the forward
  // pass of the next batch with the new values as they arrive. Returns the seconds of computation, without
  // the time spent waiting.
  double StartNextForward();
  // The epoch of the next batch. A work item that another worker returned may belong to the previous epoch.
  int64_t NextEpoch() const;
  // Called after the end of training: sets the numbers of missed and repeated examples in `summary` and, with
  // dynamic sharding, its numbers of epochs and workers.
  absl::Status FillInDeviations(Summary& summary);
  // For an asynchronous job that ended early: logs how many of the trained examples belong to epochs that the
  // chief did not reach.
  void PrintWhatWasNotShown(const Summary& summary);
  // The position of the next batch in the endless sequence of epochs.
  int64_t position() const { return sync() ? PositionAt(deps_.client.version()) : position_; }
  // The data position of a synchronous job at version `version`.
  int64_t PositionAt(int64_t version) const { return version - deps_.client.version_offset(); }
  bool done() const;
  void StartEpoch(int64_t epoch);
  // On the chief: evaluates and reports the epoch, and runs the callbacks. A second call in one epoch does
  // nothing.
  absl::Status EndEpoch();
  // On the chief of a resumed run: evaluates an epoch that was trained but not evaluated before the run
  // stopped. The run resumes from that epoch's parameters.
  absl::Status EvaluateInterruptedEpoch();
  // The epoch that has just been completed, if no example of the next epoch has been trained; otherwise
  // nullopt.
  absl::StatusOr<std::optional<int64_t>> EpochJustTrained();
  // After Stop(): saves a checkpoint, and logs what was saved.
  void SaveAtStop();
  void RecordEpoch(const ShownMetrics& metrics);
  // On the chief: passes the counters of the whole cluster since the start of the epoch to the progress line.
  void ReportCluster();
  absl::Status CarryOut(const Callbacks::Orders& orders);
  // On a chief that may reduce the learning rate: reads the servers' rate and sets it on all of them again,
  // in case an earlier chief was lost after it had set the rate on only some.
  absl::Status AgreeOnLearningRate();
  absl::Status RestoreBest();
  // The running means of training; with a validation set, also its metrics for the current parameters,
  // prefixed by "val_"; and the learning rate if it may be reduced.
  absl::StatusOr<ShownMetrics> AllMetrics();
  absl::StatusOr<nn::MetricValues> Evaluate();
  // Explains why a step's loss is not finite. Must be called right after that step.
  std::string WhyNotFinite(const data::Batch& batch, const nn::BatchView& view);

  const Dependencies deps_;
  const std::string run_id_;
  data::BatchLoader loader_;
  net::SharedBuffer gradients_;  // [num_parameters]
  std::unique_ptr<Evaluator> evaluator_;
  std::atomic<bool> stop_{false};

  int64_t position_ = 0;  // batches that this worker has trained; with bounded staleness, its clock
  const data::Batch* ahead_ = nullptr;  // the batch at next_position_ if it was loaded early; else null
  int64_t next_position_ = 0;
  int64_t epoch_ = -1;                  // the current epoch
  int64_t shown_steps_ = 0;             // steps shown in the current epoch
  int members_ = 0, most_members_ = 0;  // current and greatest number of members, from ps/0
  bool epoch_ended_ = true;
  // The last epoch whose callbacks have run. They do not run again if the epoch is trained again.
  int64_t last_ended_epoch_ = -1;
  nn::MetricSet metrics_;  // metrics of the chief's share of the current epoch
  // The version that `evaluation_` belongs to. -1: there is no evaluation, or that version's values were
  // replaced.
  int64_t evaluated_version_ = -1;
  nn::MetricValues evaluation_;  // the result for evaluated_version_
  TimePoint start_;
  int64_t examples_before_ = 0;  // examples in the whole job's updates before this run
  v1::Counters epoch_counters_;  // the counters at the start of the current epoch
  v1::Counters last_counters_;   // the counters that ReportCluster() received last
  TimePoint epoch_start_, report_at_;
};

}  // namespace cairn::worker
