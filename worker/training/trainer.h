// Trains a model: the steps of every worker. Only this class defines the order of operations in a step.
//
// Created and run by cairn-worker's main thread; Stop() may be called by any other thread. The life of the
// worker in its job is in client::TrainingLoop, and what it does between its steps in its hooks
// (training_hooks.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/training/membership.h"
#include "client/training/step_exchange.h"
#include "client/training/training_loop.h"
#include "common/core/clock.h"
#include "common/net/data_channel/shared_memory/shared_buffer.h"
#include "common/system/fault_points.h"
#include "common/trace/trace.h"
#include "data/batch_loader.h"
#include "data/dataset.h"
#include "data/length_buckets.h"
#include "nn/metrics.h"
#include "nn/replica/replica.h"
#include "worker/embedding/next_batch_fetcher.h"
#include "worker/options/options.h"
#include "worker/report/metrics.h"
#include "worker/training/step_batch_sync.h"
#include "worker/training/training_hooks.h"

namespace cairn::worker {

// The model, the data and the job of a training run. Constant.
struct TrainingSetup {
  const TrainOptions& options;
  const nn::Model& model;
  const std::vector<nn::MetricSpec>& metrics;
  const data::TrainingData& data;
  const data::SamplerOptions& sampler;
  const v1::Job& job;         // without the run_id
  const std::string& device;  // where the replica computes: "/cpu:0", or "/gpu:0,/gpu:1"
  // The buckets of the training set and the validation set; null: all batches have whole examples.
  const data::LengthBuckets *buckets = nullptr, *validation_buckets = nullptr;

  bool sync() const { return job.mode() == v1::MODE_SYNC; }
  bool ssp() const { return job.mode() == v1::MODE_SSP; }
  bool dynamic() const { return job.dynamic_sharding(); }
};

// Observers of a worker's steps. Each may be null.
struct Instruments {
  WorkerMetrics* metrics = nullptr;
  TraceRecorder* trace = nullptr;
  FaultPoints* faults = nullptr;  // passes "joined", "mean", "announced", "computed", "answered"
};

class Trainer {
 public:
  // Everything here must outlive the trainer.
  struct Dependencies {
    TrainingSetup setup;
    nn::Replica& replica;
    client::Membership& membership;
    client::StepExchange& steps;
    std::optional<client::TrainingLoop::Chief> chief{};  // on the chief only
    const Clock& clock;
    Instruments instruments{};
    NextBatchFetcher* fetcher = nullptr;  // may be null
    StepBatchSync* batch_sync = nullptr;  // that the replica uses; null: it needs no other workers
  };
  explicit Trainer(const Dependencies& deps);
  ~Trainer();

  // On the chief, before Run(): declares the job with its initial values, or the values of the checkpoint from
  // which it resumes. INVALID_ARGUMENT if a server refuses what flags or model file specify, such as an unknown
  // optimizer.
  absl::Status Initialise() { return loop_.Initialise(); }
  // Trains to the end of the job, then leaves it. A worker that lost its membership joins again and
  // continues. So does a worker that lost its servers, if the chief can restore their state. CANCELLED after
  // Stop(). On failure the servers are notified before Run() returns.
  absl::Status Run(TrainingHooks& hooks);

  // Makes Run() return soon.
  void Stop();
  bool stopped() const { return loop_.interrupted(); }

  // --- For the hooks ---
  const Dependencies& deps() const { return deps_; }
  int64_t epoch() const { return epoch_; }  // the current epoch; -1: none since the worker joined
  int64_t batches_per_epoch() const { return loader_.batches_per_epoch(); }
  // The position of the next batch in the endless sequence of epochs, with static sharding.
  int64_t position() const { return loop_.position(); }
  // [num_parameters] The gradients of this worker's last batch or, if the workers' devices sum gradients, the
  // mean of all workers' gradients.
  absl::Span<const float> last_gradients() const { return gradients_.span(); }

 private:
  // Pins the buffers that the device copies in every step. A failure only makes the copies slower and is not
  // an error.
  void PinBuffers();
  client::TrainingLoop::Options LoopOptions();
  // The worker has become a member, for the first time or again.
  absl::Status OnJoined();
  // Begins another epoch if the next batch belongs to it, and makes a step unless the job has ended.
  absl::Status MakeStep();
  absl::Status TrainStep();
  void Pass(absl::string_view point) const {
    if (deps_.instruments.faults != nullptr) deps_.instruments.faults->Pass(point);
  }
  // Identifies the batch `ahead` steps after the current one by its position or, with dynamic sharding, by its first
  // example, counted through all epochs. nullopt if it is not known, or if the job ends before.
  std::optional<int64_t> Following(int ahead) const;
  const data::Batch& NextBatch();
  nn::BatchView ViewOf(const data::Batch& batch) const;
  // A step of the exchange, and where its gradients are to be computed.
  struct BegunStep {
    client::Step& step;
    absl::Span<float> gradients;
  };
  BegunStep BeginStep(int64_t examples, int64_t position);
  // The gradients of a step that has begun.
  absl::StatusOr<nn::BatchResult> ComputeGradients(const BegunStep& begun, const nn::BatchView& view);
  // Nothing that was begun for the next batch is used.
  void ForgetNext();
  // Begins to read rows of the following batches, as far as the fetcher reads ahead.
  absl::Status ReadRowsAhead();
  // Called after a step's last gradient was computed and before the answer to the step: computes the forward
  // pass of the next batch with the new values as they arrive. Returns the seconds of computation, without
  // the time spent waiting.
  double StartNextForward(client::Step& step);
  // The epoch of the next batch. A work item that another worker returned may belong to the previous epoch.
  int64_t NextEpoch() const;
  // Explains why a step's loss is not finite. Must be called right after that step.
  std::string WhyNotFinite(const data::Batch& batch, const nn::BatchView& view);

  const Dependencies deps_;
  const TrainingSetup& setup_ = deps_.setup;
  data::BatchLoader loader_;
  const int64_t last_position_;  // TrainingLoop::Options::last_position
  net::SharedBuffer gradients_;  // [num_parameters]
  client::TrainingLoop loop_;
  TrainingHooks* hooks_ = nullptr;  // the argument of Run()

  // Following(1) of the last step: the batch whose forward pass has begun, or whose rows have been fetched.
  std::optional<int64_t> expected_;
  int reading_ahead_ = 0;  // the number of batches that follow the current one and whose rows are being read
  int64_t epoch_ = -1;
};

}  // namespace cairn::worker
