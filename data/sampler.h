// Which examples a worker sees, in which order, as in torch.utils.data.DistributedSampler.
//
// The order of epoch e is a permutation of all examples, drawn from (seed, e) and equal on every worker.
// Worker r of K takes the positions r, r+K, r+2K, ... of this order. So the K workers' j-th batches of size b
// together are exactly the j-th batch of size K*b of a job with one worker. One thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace cairn::data {

// How an epoch ends if the number of examples is not divisible by the number of workers.
enum class Tail {
  // Every example is used exactly once. Some workers' last batch is smaller, or empty (updates are weighted
  // by examples).
  kExact,
  // As DistributedSampler: the permutation's first examples are repeated, so that all workers have equally
  // many examples.
  kPad,
  // As DistributedSampler with drop_last: the last examples are omitted.
  kDrop,
};

struct SamplerOptions {
  int64_t num_examples = 0;
  int64_t num_workers = 1;
  int64_t worker = 0;  // in [0, num_workers)
  int64_t batch_size = 1;
  bool shuffle = true;
  uint64_t seed = 0;
  Tail tail = Tail::kExact;
  // [example] The bucket of its length (length_buckets.h), borrowed. Not empty: the order of an epoch is such that the
  // workers' batches of one index together have examples of one bucket, but for the last batches of the epoch.
  absl::Span<const uint8_t> bucket_of{};
};

// INVALID_ARGUMENT for invalid combinations of flags and data: no examples, more than 2^31 examples, a batch
// size below 1, a worker out of range, fewer examples than workers under kDrop.
absl::Status Validate(const SamplerOptions& options);

class Sampler {
 public:
  // `options` must be valid.
  explicit Sampler(const SamplerOptions& options);

  // Batches per epoch: the same for every worker, at least 1.
  int64_t batches_per_epoch() const { return batches_per_epoch_; }
  // The number of batches per epoch that contain examples of this worker. Under kExact it may be one less
  // than batches_per_epoch().
  int64_t batches_with_examples() const;
  // The number of examples that all workers together have seen after each has done its first `position`
  // batches of the endless sequence of epochs.
  int64_t ExamplesBefore(int64_t position) const;
  // Example indices of batch `batch` of epoch `epoch`: at most batch_size, possibly none under kExact. The
  // permutation of the last requested epoch is cached.
  std::vector<uint32_t> Batch(int64_t epoch, int64_t batch);
  // The examples at [first, first + count) of the epoch's order, regardless of workers.
  std::vector<uint32_t> Run(int64_t epoch, int64_t first, int64_t count);

 private:
  void Order(int64_t epoch);

  const SamplerOptions options_;
  const int64_t positions_;  // per epoch, over all workers: num_examples, padded or truncated
  const int64_t batches_per_epoch_;
  int64_t cached_epoch_ = -1;
  std::vector<uint32_t> order_;  // [num_examples], the permutation of cached_epoch_
};

}  // namespace cairn::data
