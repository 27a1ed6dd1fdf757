// Trains: the one place where the order of a step is written.
//
// Made and run by cairn-worker's main thread; Stop() may come from any other.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/clock.h"
#include "kernels/device.h"
#include "worker/client/training_client.h"
#include "worker/data/batch_loader.h"
#include "worker/data/dataset.h"
#include "worker/evaluator.h"
#include "worker/nn/metrics.h"
#include "worker/nn/replica.h"
#include "worker/options.h"
#include "worker/progress.h"
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
    const v1::Job& job;  // but for the run_id
    kernels::Device& device;
    nn::Replica& replica;
    client::TrainingClient& client;
    Progress* progress;  // null for all but the chief
    const Clock& clock;
  };
  explicit Trainer(const Parts& parts);

  // The chief's, before Run(): declares the job to servers that have none, with its initial values.
  // INVALID_ARGUMENT when a server refuses what flags or model file say, such as an optimizer that it lacks.
  absl::Status Initialise();

  // Trains to the job's end and leaves it. The chief also evaluates, and, when all others have left, ends the
  // servers; what it returns tells of the whole run, what others return of their part. CANCELLED after
  // Stop(). On failure the servers are told before this returns.
  absl::StatusOr<Summary> Run();

  // Makes Run() return soon.
  void Stop();

 private:
  bool chief() const { return parts_.progress != nullptr; }
  bool sync() const { return parts_.job.mode() == v1::MODE_SYNC; }
  absl::Status Train();
  absl::Status TrainStep();
  absl::StatusOr<Summary> WrapUp();
  // The position in the endless sequence of epochs of the next batch.
  int64_t position() const { return sync() ? parts_.client.version() : position_; }
  bool done() const;
  void StartEpochOf(int64_t position);
  absl::Status EndEpoch();
  // The running means of training, and, with a validation set, what the current parameters make of it, "val_"
  // before their names.
  absl::StatusOr<ShownMetrics> AllMetrics();
  absl::StatusOr<nn::MetricValues> Evaluate();
  // For the message about a loss that is not finite: the first variable that is not, or the largest value.
  std::string NotFinite(absl::Span<const float> parameters) const;

  const Parts parts_;
  data::BatchLoader loader_;
  AlignedBuffer gradients_;  // [num_parameters]
  std::unique_ptr<Evaluator> evaluator_;
  std::atomic<bool> stop_{false};

  int64_t position_ = 0;   // batches that this worker has trained on
  int64_t epoch_ = -1;     // the one under way
  nn::MetricSet metrics_;  // of the chief's part of the epoch under way
  int64_t evaluated_version_ = -1;
  nn::MetricValues evaluation_;  // of that version
  TimePoint start_;
};

}  // namespace cairn::worker
