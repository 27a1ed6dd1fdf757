// Which examples a worker sees, in which order: torch.utils.data.DistributedSampler's semantics.
//
// Epoch e's order is one permutation of all examples, drawn from (seed, e), the same on every worker; worker
// r of K takes positions r, r+K, r+2K, ... of it. So the K workers' j-th batches of size b together are
// exactly the one-worker job's j-th batch of size K*b. One thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace cairn::data {

// What happens to the tail of an epoch when the examples do not divide among the workers.
enum class Tail {
  kExact,  // every example exactly once: some workers' last batch is smaller, or empty (updates weigh by
           // examples)
  kPad,    // as DistributedSampler: the head of the permutation is repeated, so that all have equally many
  kDrop,   // as DistributedSampler with drop_last: the tail is left out
};

struct SamplerOptions {
  int64_t num_examples = 0;
  int64_t num_workers = 1;
  int64_t worker = 0;  // in [0, num_workers)
  int64_t batch_size = 1;
  bool shuffle = true;
  uint64_t seed = 0;
  Tail tail = Tail::kExact;
};

// INVALID_ARGUMENT for options that come from flags and data and cannot work: no examples, more than 2^31 of
// them, a batch size below 1, a worker out of range, fewer examples than workers under kDrop.
absl::Status Validate(const SamplerOptions& options);

class Sampler {
 public:
  // `options` must be valid.
  explicit Sampler(const SamplerOptions& options);

  // Batches per epoch: the same for every worker, at least 1.
  int64_t batches_per_epoch() const { return batches_per_epoch_; }
  // How many of them hold examples for this worker: under kExact perhaps one less.
  int64_t batches_with_examples() const;
  // How many examples all workers together have seen when each has done its first `position` batches, of the
  // endless sequence of epochs.
  int64_t ExamplesBefore(int64_t position) const;
  // Example indices of batch `batch` of epoch `epoch`, at most batch_size, perhaps none under kExact.
  // The permutation of the last epoch asked for is kept.
  std::vector<uint32_t> Batch(int64_t epoch, int64_t batch);
  // Those at [first, first + count) of the epoch's order, whatever worker they would be of.
  std::vector<uint32_t> Run(int64_t epoch, int64_t first, int64_t count);

 private:
  void Order(int64_t epoch);

  const SamplerOptions options_;
  const int64_t positions_;  // of an epoch over all workers: num_examples, padded up or cut down
  const int64_t batches_per_epoch_;
  int64_t cached_epoch_ = -1;
  std::vector<uint32_t> order_;  // [num_examples], the permutation of cached_epoch_
};

}  // namespace cairn::data
