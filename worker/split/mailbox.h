// Exchanges activations and their gradients between the pipeline stages of this process and of others. The
// pipeline uses a Mailbox as its nn::RemoteStages. The mailbox sends and receives over the links of a stage
// leader or a stage worker.
//
// One thread begins and ends calls. The links' threads call OnTensor(), the devices' threads call the methods
// of nn::RemoteStages.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/split.pb.h"
#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/wire/frame.h"
#include "nn/pipeline/pipeline.h"
#include "nn/pipeline/remote_stages.h"
#include "worker/split/incoming.h"

namespace cairn::split {

class Mailbox final : public nn::RemoteStages {
 public:
  // Sends a tensor to the task that `tensor` names. Any thread; must not block.
  using SendFunction = std::function<void(const v1::StageTensorName& tensor, absl::Span<const float> values)>;
  explicit Mailbox(SendFunction send) : send_(std::move(send)) {}
  // Must be called once, before the first call; `pipeline` must outlive the calls.
  void SetPipeline(nn::Pipeline* pipeline) { pipeline_ = pipeline; }

  // Prepares for a batch of `examples` examples. From now on its tensor fragments may arrive. No other batch
  // may be running.
  void Begin(int64_t examples) ABSL_LOCKS_EXCLUDED(mutex_);
  // Must be called when Pipeline::Run() starts. Notifies the pipeline of the tensors that have already
  // arrived, and from then on of every tensor that arrives.
  void Started() ABSL_LOCKS_EXCLUDED(mutex_);
  // INVALID_ARGUMENT for a fragment that is not expected.
  absl::Status OnTensor(const v1::StageTensorName& tensor, net::Payload payload) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<const float*> Received(const nn::StageTensor& what) override;
  void Send(int task, const nn::StageTensor& what, absl::Span<const float> values, bool completes) override;

 private:
  using Work = std::tuple<int, int, bool>;  // a task of the pipeline: stage, micro-batch, backward

  const SendFunction send_;
  nn::Pipeline* pipeline_ = nullptr;
  Incoming incoming_;
  std::vector<AlignedBuffer> buffers_;  // [tensor of ArrivalsOf()]; used by the thread that begins calls

  Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  // Tasks of the current call whose tensors have all arrived.
  std::set<Work> complete_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::split
