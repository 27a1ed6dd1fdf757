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
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/split.pb.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "nn/pipeline/pipeline.h"
#include "nn/replica/replica.h"
#include "worker/peer/link.h"
#include "worker/split/incoming.h"
#include "worker/split/mailbox.h"
#include "worker/split/ticker.h"

namespace cairn::split {

class StageLeader final : public nn::Replica {
 public:
  struct StageWorkerAddress {
    std::string name;  // "worker/1 at host:2222"
    int worker = 0;    // its task index
    std::unique_ptr<allreduce::RingPeer> peer;
  };
  struct Options {
    int worker = 0;             // this task's index
    uint64_t cluster_hash = 0;  // 0: not compared with the stage workers' hashes
    uint64_t incarnation = 0;   // identifies this process
    v1::SplitPlan plan;
    std::vector<StageWorkerAddress> stage_workers;  // [task in the group - 1]
    Duration lease = std::chrono::seconds(10);      // a stage worker that is silent for longer is lost
    Duration connect_timeout = std::chrono::seconds(300);
    Duration step_timeout = std::chrono::seconds(600);  // limit for one batch
    // Called with a message about a lost stage worker, or about a wait for stage workers. May be null.
    std::function<void(const std::string&)> say{};
    // Polled during a wait. If it returns true, the wait ends with CANCELLED. May be null.
    std::function<bool()> stop{};
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
  struct Link;
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
  absl::StatusOr<std::shared_ptr<Link>> Open(size_t stage_worker, TimePoint deadline);
  absl::Status ReachBy(TimePoint deadline);
  void DropLinks();
  // Destroys the link when no other thread uses it.
  static void Drop(std::shared_ptr<Link> link);

  absl::StatusOr<nn::BatchResult> RunUntilDone(const Batch& batch,
                                               absl::FunctionRef<void(int variable)> on_gradient);
  absl::StatusOr<nn::BatchResult> RunOnce(const Batch& batch,
                                          absl::FunctionRef<void(int variable)> on_gradient);
  void Expect(const Batch& batch);
  void Give(size_t stage_worker, const Batch& batch);
  void SendValues(const v1::StageTensorName& tensor, absl::Span<const float> values)
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<Link> link(size_t stage_worker) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status OnFrame(Link& link, const v1::RingHeader& header, net::Payload payload)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnTensor(const v1::StageTensorName& tensor, net::Payload payload);
  void OnDone(Link& link, const v1::SplitDone& done) ABSL_LOCKS_EXCLUDED(mutex_);
  void Lose(Link& link, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);
  std::string InStep() const ABSL_LOCKS_EXCLUDED(mutex_);
  void Say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }
  bool stopped() const { return options_.stop && options_.stop(); }

  const Options options_;
  const nn::Model& model_;
  const nn::LossSpec loss_;
  std::function<int64_t()> step_;
  std::vector<Needs> needs_;  // [stage worker]
  Mailbox mailbox_;
  std::unique_ptr<nn::Pipeline> pipeline_;
  nn::InputSplitter inputs_;
  Incoming incoming_;
  AlignedBuffer outputs_;  // the outputs of the batch
  AlignedBuffer again_;    // gradients of a repeated batch

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<Link>> links_ ABSL_GUARDED_BY(mutex_);  // [stage worker] null: not connected
  bool in_call_ ABSL_GUARDED_BY(mutex_) = false;
  TimePoint call_began_ ABSL_GUARDED_BY(mutex_);
  int64_t call_step_ ABSL_GUARDED_BY(mutex_) = 0;
  nn::Pipeline::Result theirs_ ABSL_GUARDED_BY(mutex_);  // the results of the stage workers' stages
  TimePoint last_beat_;                                  // used by the heartbeat thread
  std::unique_ptr<Ticker> beats_;
};

}  // namespace cairn::split
