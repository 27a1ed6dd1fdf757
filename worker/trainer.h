// Trains: the one place where the order of a step is written.
//
// Made and run by cairn-worker's main thread; Stop() may come from any other.
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
#include "common/net/direct/shared_buffer.h"
#include "worker/board/board.h"
#include "worker/callbacks.h"
#include "worker/client/exchange.h"
#include "worker/data/batch_loader.h"
#include "worker/data/dataset.h"
#include "worker/evaluator.h"
#include "worker/meters.h"
#include "worker/nn/metrics.h"
#include "worker/nn/replica.h"
#include "worker/options.h"
#include "worker/progress.h"
#include "worker/snapshots.h"
#include "worker/summary.h"

namespace cairn::worker {

class Trainer {
 public:
  // Everything here outlives the trainer.
  struct Parts {
    const TrainOptions& options;
    const nn::Model& model;
    const std::vector<nn::MetricSpec>& metrics;
    const data::TrainingData& data;
    const data::SamplerOptions& sampler;
    const v1::Job& job;         // but for the run_id
    const std::string& device;  // "/cpu:0", or "/gpu:0,/gpu:1": where the replica computes
    nn::Replica& replica;
    client::Exchange& client;
    // Null for all but the chief.
    Progress* progress;
    Callbacks* callbacks;
    Snapshots* snapshots;
    // The chief's: given the result before the servers are ended, so that who sees one end knows it is out.
    std::function<absl::Status(const Summary&)> publish;
    Board* board = nullptr;          // null without --train_dir too
    WorkerMeters* meters = nullptr;  // may be null
    const Clock& clock;
    TraceRecorder* trace = nullptr;  // may be; is told of each step
    FaultPoints* faults = nullptr;   // may be; passes "joined", "announced", "computed", "answered"
  };
  explicit Trainer(const Parts& parts);
  ~Trainer();

  // The chief's, before Run(): declares the job to servers that have none, with its initial values or those
  // of the snapshot that it goes on from. INVALID_ARGUMENT when a server refuses what flags or model file
  // say, such as an optimizer that it lacks.
  absl::Status Initialise();

  // Trains to the job's end and leaves it. The chief also evaluates, and, when all others have left, ends the
  // servers; what it returns tells of the whole run, what others return of their part. A worker that has lost
  // its place, or its servers where the chief can give them back what they lost, joins again and goes on.
  // CANCELLED after Stop(), when the chief has saved. On failure the servers are told before this returns.
  absl::StatusOr<Summary> Run();

  // Makes Run() return soon.
  void Stop();

 private:
  // What the device copies in every step; that it goes slower otherwise is no reason to stop.
  void PinBuffers();
  bool chief() const { return parts_.progress != nullptr; }
  bool sync() const { return parts_.job.mode() == v1::MODE_SYNC; }
  bool dynamic() const { return parts_.job.dynamic_sharding(); }
  bool ssp() const { return parts_.job.mode() == v1::MODE_SSP; }
  // Learns the job and becomes a member, for the first time or again.
  absl::Status Enter();
  absl::Status Reenter();
  absl::StatusOr<Summary> TrainAndMend();
  absl::StatusOr<Summary> TrainToTheEnd();
  absl::Status TrainStep();
  absl::StatusOr<Summary> WrapUp();
  void Pass(absl::string_view point) const {
    if (parts_.faults != nullptr) parts_.faults->Pass(point);
  }
  // Of data that is handed out: what the servers answered last. Waits until there is a ticket, or the end.
  absl::Status NoteWork();
  const data::Batch& NextBatch();
  nn::BatchView ViewOf(const data::Batch& batch) const;
  // Between a step's last gradient and its answer: the forward pass of the next batch, on those values that
  // have come. Seconds that it took, without those that it waited.
  double LookAhead();
  // The epoch of the next batch. Of a ticket that was given back by another worker it may be one before.
  int64_t NextEpoch() const;
  // What was not used, or twice, by how many workers; after the end.
  absl::Status FillInDeviations(Summary& summary);
  // For an asynchronous job that ended early: logs that updates of other workers belong to epochs that the
  // chief never reached.
  void SayWhatWasNotShown(const Summary& summary);
  // The position in the endless sequence of epochs of the next batch.
  int64_t position() const { return sync() ? PositionAt(parts_.client.version()) : position_; }
  // The position in the data of a synchronous job at a version.
  int64_t PositionAt(int64_t version) const { return version - parts_.client.version_offset(); }
  bool done() const;
  void StartEpoch(int64_t epoch);
  // The chief's, once for each epoch.
  absl::Status EndEpoch();
  // For the chief of a resumed run: evaluates an epoch that was trained, but not evaluated before the run
  // stopped. The parameters of that epoch are those that the run resumes from.
  absl::Status EvaluateInterruptedEpoch();
  // The epoch whose last example is the last that was trained on; nothing within an epoch.
  absl::StatusOr<std::optional<int64_t>> EpochJustTrained();
  // After Stop(): saves, and says what was saved.
  void SaveAtStop();
  void RecordEpoch(const ShownMetrics& metrics);
  // The chief's display of how the whole cluster does, since the epoch's begin.
  void TellOfCluster();
  absl::Status CarryOut(const Callbacks::Orders& orders);
  // Of a chief that reduces it: what the servers have, which those that a chief before was cut off from hear
  // again.
  absl::Status AgreeOnLearningRate();
  absl::Status RestoreBest();
  // The running means of training, and, with a validation set, what the current parameters make of it, "val_"
  // before their names; and the learning rate where it is reduced.
  absl::StatusOr<ShownMetrics> AllMetrics();
  absl::StatusOr<nn::MetricValues> Evaluate();
  // The reason that a step's loss is not finite. To be called right after that step.
  std::string WhyNotFinite(const data::Batch& batch, const nn::BatchView& view);

  const Parts parts_;
  const std::string run_id_;
  data::BatchLoader loader_;
  net::SharedBuffer gradients_;  // [num_parameters]
  std::unique_ptr<Evaluator> evaluator_;
  std::atomic<bool> stop_{false};

  int64_t position_ = 0;  // batches that this worker has trained on; with bounded staleness, its clock
  const data::Batch* ahead_ = nullptr;  // the batch at ahead_position_, taken from the loader before its step
  int64_t ahead_position_ = 0;
  int64_t epoch_ = -1;                  // the one under way
  int64_t shown_steps_ = 0;             // of it
  int members_ = 0, most_members_ = 0;  // workers that take part, as ps/0 said; now, and at most
  bool epoch_ended_ = true;
  int64_t last_ended_epoch_ = -1;   // what follows an epoch's end is not done again when it is trained again
  nn::MetricSet metrics_;           // of the chief's part of the epoch under way
  int64_t evaluated_version_ = -1;  // -1: none, or one whose values have been replaced
  nn::MetricValues evaluation_;     // of that version
  TimePoint start_;
  int64_t examples_before_ = 0;  // in updates, of the whole job
  v1::Counters epoch_counters_;  // when the epoch under way began
  v1::Counters last_counters_;   // as TellOfCluster() was told last
  TimePoint epoch_start_, tell_at_;
};

}  // namespace cairn::worker
