// Fetches the rows of embedding tables that later batches need, before those batches are trained. Called by the
// trainer's thread.
//
//   { Read: a later batch, before the step computes ─► the step }...      if reads_ahead() > 0
//   { the step computes ─► Fetch: the next batch ─► the answer }...       otherwise
#pragma once

#include "absl/status/status.h"
#include "nn/batch.h"

namespace cairn::worker {

class NextBatchFetcher {
 public:
  virtual ~NextBatchFetcher() = default;
  // The gradients of the current step are complete, and its answer is awaited next: it shall bring the rows of `next`,
  // which stays valid during the following step. That step usually trains it.
  virtual absl::Status Fetch(const nn::BatchView& next) = 0;
  // How many batches after the current one have their rows read while it is trained.
  virtual int reads_ahead() const = 0;
  // Begins to read the rows of the batch that follows those already being read. `batch` stays valid until it has been
  // trained.
  virtual absl::Status Read(const nn::BatchView& batch) = 0;
  // The worker has joined again, or another batch follows: what was fetched is not used.
  virtual void Forget() = 0;
};

}  // namespace cairn::worker
