// The activations, and their gradients, that pipeline stages of this process exchange with those of others.
// Connects the pipeline, whose remote stages (nn::RemoteStages) it represents, with the links of a stage
// leader or a stage worker.
//
// One thread begins and ends calls. OnTensor() is called by the threads of the links, the methods of
// nn::RemoteStages by those of the devices.
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
#include "common/core/aligned_buffer.h"
#include "common/core/mutex.h"
#include "common/net/frame.h"
#include "worker/nn/pipeline.h"
#include "worker/nn/remote_stages.h"
#include "worker/split/incoming.h"

namespace cairn::split {

class Mailbox final : public nn::RemoteStages {
 public:
  // Sends a tensor to the task that `tensor` names. Any thread; must not block.
  using SendFunction = std::function<void(const v1::StageTensorName& tensor, absl::Span<const float> values)>;
  explicit Mailbox(SendFunction send) : send_(std::move(send)) {}
  // Must be called once, before the first call; `pipeline` must outlive the calls.
  void SetPipeline(nn::Pipeline* pipeline) { pipeline_ = pipeline; }

  // Expects a batch of this many examples: fragments may arrive. No other batch may be running.
  void Begin(int64_t examples) ABSL_LOCKS_EXCLUDED(mutex_);
  // Must be called when Pipeline::Run() starts. From then on the pipeline is notified of every tensor that
  // arrives, and first of those that have arrived already.
  void Started() ABSL_LOCKS_EXCLUDED(mutex_);
  // INVALID_ARGUMENT for a fragment that is not expected.
  absl::Status OnTensor(const v1::StageTensorName& tensor, net::Payload payload) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<const float*> Received(const nn::StageTensor& what) override;
  void Send(int task, const nn::StageTensor& what, absl::Span<const float> values, bool completes) override;

 private:
  using Work = std::tuple<int, int, bool>;  // stage, micro-batch, backward

  const SendFunction send_;
  nn::Pipeline* pipeline_ = nullptr;
  Incoming incoming_;
  std::vector<AlignedBuffer> buffers_;  // [arrival]; used by the thread that begins calls

  Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Work> complete_ ABSL_GUARDED_BY(mutex_);  // work that is complete in the current call
};

}  // namespace cairn::split
