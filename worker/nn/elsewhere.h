// Parts of a divided model that other processes compute, as the pipeline of this one sees them: what comes
// from them, and the way to them. The pipeline's side of it is Pipeline::Finish() and the calls beside it.
//
// Called by the devices' threads.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cairn::nn {

// A tensor on its way from part to part, of one micro-batch: output `slot` of `part`, or, backward, the
// gradient of its input `slot`.
struct Crossing {
  int part = 0, slot = 0, micro_batch = 0;
  bool backward = false;
};

class Elsewhere {
 public:
  virtual ~Elsewhere() = default;

  // What another process has computed, and the schedule says has come: host memory, until the call's end. An
  // error when it has not come whole.
  virtual absl::StatusOr<const float*> Received(const Crossing& what) = 0;
  // What goes to process `task`; copied before this returns. `completes`: it is the last of this part's work
  // for this micro-batch that goes there.
  virtual void Send(int task, const Crossing& what, absl::Span<const float> values, bool completes) = 0;
};

}  // namespace cairn::nn
