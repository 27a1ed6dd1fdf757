// Pipeline stages that other processes compute, as this process's pipeline sees them: it receives tensors
// from them and sends tensors to them. Their processes report to the pipeline by Pipeline::Finish(),
// Announce() and OtherDone().
//
// Called by the devices' threads.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cairn::nn {

// A tensor of one micro-batch that passes from stage to stage: output `slot` of stage `stage` or, backward,
// the gradient of its input `slot`.
struct StageTensor {
  int stage = 0, slot = 0, micro_batch = 0;
  bool backward = false;
};

class RemoteStages {
 public:
  virtual ~RemoteStages() = default;

  // Returns a tensor that another process has computed, in host memory that is valid until the end of the
  // pipeline's call. Called when the schedule says that the tensor has arrived; an error if it is incomplete.
  virtual absl::StatusOr<const float*> Received(const StageTensor& what) = 0;
  // Sends a tensor to process `task`. `values` are copied before this returns. `completes`: this is the last
  // tensor of this stage and micro-batch for that process.
  virtual void Send(int task, const StageTensor& what, absl::Span<const float> values, bool completes) = 0;
};

}  // namespace cairn::nn
