// Fetches the rows that the next batch needs together with the answer to the current step. Called by the trainer's
// thread.
#pragma once

#include "absl/status/status.h"
#include "nn/batch.h"

namespace cairn::worker {

class NextBatchFetcher {
 public:
  virtual ~NextBatchFetcher() = default;
  // The gradients of the current step are complete, and its answer is awaited next. `next` stays valid during the
  // following step, which usually trains it.
  virtual absl::Status Fetch(const nn::BatchView& next) = 0;
  // The worker has joined again: what was fetched may be out of date.
  virtual void Forget() = 0;
};

}  // namespace cairn::worker
