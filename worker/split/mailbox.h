// What a pipeline's parts of one process and those of others send each other: activations and their
// gradients. Between the pipeline, whose Elsewhere it is, and the links of a head or a partner.
//
// One thread begins and ends calls; OnPiece() comes from the links' threads, what is Elsewhere's from the
// devices'.
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
#include "worker/nn/elsewhere.h"
#include "worker/nn/pipeline.h"
#include "worker/split/incoming.h"

namespace cairn::split {

class Mailbox final : public nn::Elsewhere {
 public:
  // How pieces leave: to the task that they name. Any thread, must not block.
  using SendFunction = std::function<void(const v1::SplitPiece& piece, absl::Span<const float> values)>;
  explicit Mailbox(SendFunction send) : send_(std::move(send)) {}
  // Once, before the first call; it outlives the calls.
  void SetPipeline(nn::Pipeline* pipeline) { pipeline_ = pipeline; }

  // A batch of so many examples is expected: pieces may come. Nothing of another one is under way.
  void Begin(int64_t examples) ABSL_LOCKS_EXCLUDED(mutex_);
  // In Pipeline::Run(), when it begins: it is told of all that has come, and will.
  void Started() ABSL_LOCKS_EXCLUDED(mutex_);
  // INVALID_ARGUMENT for what is not expected.
  absl::Status OnPiece(const v1::SplitPiece& piece, net::Payload payload) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<const float*> Received(const nn::Crossing& what) override;
  void Send(int task, const nn::Crossing& what, absl::Span<const float> values, bool completes) override;

 private:
  using Work = std::tuple<int, int, bool>;  // part, micro-batch, backward

  const SendFunction send_;
  nn::Pipeline* pipeline_ = nullptr;
  Incoming incoming_;
  std::vector<AlignedBuffer> buffers_;  // of the arrivals in their order; the thread's that begins

  Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Work> complete_ ABSL_GUARDED_BY(mutex_);  // of this call
};

}  // namespace cairn::split
