// A worker that computes pipeline stages of a model for the stage leader (`StageLeader`) of its group. It
// serves one batch after another until the stage leader reports that training is over. It reads no data, and
// no server knows it.
//
//            hello                      begin, and the data it announces            done
//   alone ─────────► has a leader ─────────────────────────────────────► computes ─────────► has a leader
//     ▲                    │                                                 │
//     └── the link ends, or the stage leader is silent for a lease ◄─────────┘
//
// While alone, it waits for the stage leader (the same process or its successor), at most for the connect
// timeout. Serve() is called by cairn-worker's main thread, the calls of the listener come from any thread.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/split.pb.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/data_channel/data_endpoint.h"
#include "common/system/fault_points.h"
#include "common/system/ticker.h"
#include "common/trace/trace.h"
#include "nn/pipeline/pipeline.h"
#include "worker/peer/link.h"
#include "worker/split/incoming.h"
#include "worker/split/mailbox.h"

namespace cairn::split {

class StageWorker final : public allreduce::RingHost {
 public:
  struct Options {
    int worker = 0;                     // this task's index
    int leader = 0;                     // the stage leader's task index
    std::string leader_name;            // "worker/0 at host:2222"
    uint64_t cluster_hash = 0;          // 0: not compared with the stage leader's hash
    uint64_t incarnation = 0;           // identifies this process
    net::DataEndpoint data_endpoint{};  // this worker's address for the data channel
    v1::SplitPlan plan;
    Duration lease = std::chrono::seconds(10);  // a stage leader that is silent for longer is lost
    Duration connect_timeout = std::chrono::seconds(300);
    // Called while this worker waits for a stage leader, and when it has lost its stage leader. May be null.
    std::function<void(const std::string&)> say{};
    std::function<bool()> stop{};    // may be null; polled; true ends Serve() with CANCELLED
    TraceRecorder* trace = nullptr;  // may be null; records each step
    // May be null. The fault point "announced" is passed after each gradient, "computed" after each training
    // batch.
    FaultPoints* faults = nullptr;
  };
  // `pipeline` must be complete except for `remote_stages`.
  static absl::StatusOr<std::unique_ptr<StageWorker>> Create(Options options, nn::Pipeline::Options pipeline);
  // Must be destroyed after the listener that calls it.
  ~StageWorker() override;

  // Returns OK when the stage leader has reported that training is over, or the failure that it reported.
  // UNAVAILABLE if no stage leader has connected in time.
  absl::Status Serve() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status OnGreet(const v1::GreetRequest& request, v1::GreetResponse* response) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<allreduce::RingHandler> OnStream(std::shared_ptr<allreduce::RingStream> back) override;

 private:
  struct Inlet;
  // Host memory for all values or gradients of a model. Only pages with variables of this worker's stages are
  // ever touched.
  struct Freed {
    void operator()(float* memory) const { std::free(memory); }
  };
  using Flat = std::unique_ptr<float[], Freed>;

  StageWorker(Options options, const nn::Pipeline::Options& pipeline);
  void FindNeeds();
  absl::StatusOr<v1::SplitBegin> AwaitBatch() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunBatch(const v1::SplitBegin& begin) ABSL_LOCKS_EXCLUDED(mutex_);
  // Computes the batch and sends its gradients to `leader`, which may be null.
  absl::StatusOr<nn::Pipeline::Result> Run(const v1::SplitBegin& begin,
                                           const std::shared_ptr<allreduce::RingStream>& leader)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The arguments of a batch that has arrived. `inputs`: the addresses of inputs_.
  nn::Pipeline::Call CallOf(const v1::SplitBegin& begin, absl::Span<const TensorView> inputs);
  void SendOutputs(allreduce::RingStream& leader, int64_t examples);
  void Send(const v1::StageTensorName& tensor, absl::Span<const float> values) ABSL_LOCKS_EXCLUDED(mutex_);
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Span<float> ValuesOf(const Flat& flat, int variable) const;

  // Calls by the stage leader.
  absl::Status OnFrame(Inlet& inlet, const v1::RingHeader& header, net::Payload payload)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnHello(Inlet& inlet, const v1::RingHello& hello) ABSL_LOCKS_EXCLUDED(mutex_);
  // RESOURCE_EXHAUSTED if there is no memory for the batch.
  absl::Status OnBegin(const v1::SplitBegin& begin) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Begin(const v1::SplitBegin& begin) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnTensor(const v1::StageTensorName& tensor, net::Payload payload) ABSL_LOCKS_EXCLUDED(mutex_);
  // Marks the stage leader as lost if `link` is its link.
  void Lose(const allreduce::RingStream* link, const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void Say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  const Options options_;
  const nn::Model& model_;
  const nn::Objective objective_;
  // Indices in the model: the variables of this worker's stages, and the model inputs that these stages read.
  std::vector<int> variables_, reads_;
  bool last_ = false;  // whether this worker has the end of the model
  Mailbox mailbox_;
  std::unique_ptr<nn::Pipeline> pipeline_;
  Flat values_, gradients_;  // in the model's flat order
  Incoming incoming_;
  // Buffers of the current batch, allocated when it begins.
  std::vector<AlignedBuffer> inputs_;  // [model input]
  AlignedBuffer targets_, weights_, outputs_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<allreduce::RingStream> link_ ABSL_GUARDED_BY(mutex_);  // null: alone
  TimePoint heard_ ABSL_GUARDED_BY(mutex_);  // when the last frame of the stage leader arrived
  TimePoint alone_since_ ABSL_GUARDED_BY(mutex_);
  // The current batch; nullopt when it is finished.
  std::optional<v1::SplitBegin> begun_ ABSL_GUARDED_BY(mutex_);
  // The number of elements that must still arrive before the batch runs.
  int64_t preceding_ ABSL_GUARDED_BY(mutex_) = 0;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;                  // the last step that has begun
  std::optional<absl::Status> over_ ABSL_GUARDED_BY(mutex_);  // set when training is over
  TimePoint last_beat_;                                       // used by the heartbeat thread
  std::unique_ptr<Ticker> beats_;
};

}  // namespace cairn::split
