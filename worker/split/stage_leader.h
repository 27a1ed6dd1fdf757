// The stage leader of a group of workers over which a model is divided: the replica that its trainer calls.
// It computes the pipeline stages of its own task, sends the stage workers (`StageWorker`) their inputs of
// every batch, and receives their gradients.
//
// If a stage worker is lost, the stage leader waits for it and repeats the batch with the same values. The
// results have the same bits, so the trainer does not notice. A gradient that was reported as final is not
// written again.
//
// Made and called by cairn-worker's main thread. No thread uses a call's arguments after the call has
// returned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/split.pb.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "common/system/ticker.h"
#include "nn/pipeline/pipeline.h"
#include "nn/replica/replica.h"
#include "worker/split/incoming.h"
#include "worker/split/mailbox.h"
#include "worker/split/stage_worker_links.h"

namespace cairn::split {

class StageLeader final : public nn::Replica, private StageWorkerLinks::Handler {
 public:
  struct Options {
    StageWorkerLinks::Options links;
    Duration connect_timeout = std::chrono::seconds(300);
    Duration step_timeout = std::chrono::seconds(600);  // limit for one batch
  };
  // `pipeline` must be complete except for `remote_stages`.
  static absl::StatusOr<std::unique_ptr<StageLeader>> Create(Options options, nn::Pipeline::Options pipeline);
  ~StageLeader() override;

  // Connects to all stage workers, within the connect timeout. UNAVAILABLE, naming the stage worker that was
  // not reached; FAILED_PRECONDITION if one belongs to another cluster or divides another model.
  absl::Status Reach();
  // A function that returns the version that the next batch makes, for messages.
  void SetStep(std::function<int64_t()> step) { step_ = std::move(step); }
  // Reports the result of this worker's job. After success or a permanent failure the stage workers are
  // notified and end in the same way; otherwise they wait for the next process of the stage leader.
  void End(const absl::Status& status);

  absl::StatusOr<nn::BatchResult> ForwardBackward(absl::Span<const float> parameters,
                                                  const nn::BatchView& batch, absl::Span<float> gradients,
                                                  absl::FunctionRef<void(int variable)> on_gradient) override;
  absl::StatusOr<nn::BatchResult> Evaluate(absl::Span<const float> parameters,
                                           const nn::BatchView& batch) override;
  absl::Status Pin(absl::Span<const float> host) override { return pipeline_->Pin(host); }
  bool pins() const override { return pipeline_->pins(); }
  void Unpin() override { pipeline_->Unpin(); }

 private:
  using Link = StageWorkerLinks::Link;
  // The variables and inputs that the stages of a stage worker need.
  struct Needs {
    std::vector<int> variables, inputs;  // indices in the model, ascending
    bool last = false;                   // whether the stage worker has the end of the model
  };
  struct Batch {
    absl::Span<const float> parameters;
    const nn::BatchView& view;
    absl::Span<float> gradients;
    bool training;
  };

  StageLeader(Options options, const nn::Pipeline::Options& pipeline);
  void FindNeeds();

  absl::StatusOr<nn::BatchResult> RunUntilDone(const Batch& batch,
                                               absl::FunctionRef<void(int variable)> on_gradient);
  absl::StatusOr<nn::BatchResult> RunOnce(const Batch& batch,
                                          absl::FunctionRef<void(int variable)> on_gradient);
  void Expect(const Batch& batch);
  void Give(size_t stage_worker, const Batch& batch);
  // Called when the pipeline starts a call.
  void BeginCall(const Batch& batch) ABSL_LOCKS_EXCLUDED(mutex_);
  void SendValues(const v1::StageTensorName& tensor, absl::Span<const float> values);

  absl::Status OnFrame(Link& link, const v1::RingHeader& header, net::Payload payload) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLost(const Link& link, const absl::Status& why) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnTensor(const v1::StageTensorName& tensor, net::Payload payload);
  void OnDone(Link& link, const v1::SplitDone& done) ABSL_LOCKS_EXCLUDED(mutex_);
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);

  const Duration connect_timeout_, step_timeout_;
  const nn::Model& model_;
  const nn::Objective objective_;
  std::function<int64_t()> step_;
  std::vector<Needs> needs_;  // [stage worker]
  Mailbox mailbox_;
  std::unique_ptr<nn::Pipeline> pipeline_;
  Incoming incoming_;
  AlignedBuffer outputs_;  // the outputs of the batch
  AlignedBuffer again_;    // gradients of a repeated batch
  int64_t call_step_ = 0;  // used by the thread that runs batches

  Mutex mutex_;
  bool in_call_ ABSL_GUARDED_BY(mutex_) = false;
  TimePoint call_began_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> done_ ABSL_GUARDED_BY(mutex_);       // [stage worker] it has finished the current batch
  nn::Pipeline::Result theirs_ ABSL_GUARDED_BY(mutex_);  // the results of the stage workers' stages

  StageWorkerLinks links_;  // destroyed before the members that its threads use
  std::unique_ptr<Ticker> beats_;
};

}  // namespace cairn::split
