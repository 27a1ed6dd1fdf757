// Which examples a worker sees, in which order: torch.utils.data.DistributedSampler's semantics.
//
// Epoch e's order is one permutation of all examples, drawn from (seed, e), the same on every worker; worker r of
// K takes positions r, r+K, r+2K, ... of it. So the K workers' j-th batches of size b together are exactly the
// one-worker job's j-th batch of size K*b. One thread at a time.
#pragma once

#include <cstdint>
#include <vector>

namespace cairn::data {

// What happens to the tail of an epoch when the examples do not divide among the workers.
enum class Tail {
  kExact,  // every example exactly once: some workers' last batch is smaller, or empty (updates weigh by examples)
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

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  // Batches per epoch: the same for every worker.
  int64_t batches_per_epoch() const;
  // Example indices of batch `batch` of epoch `epoch`, at most batch_size, perhaps none under kExact.
  // The permutation of the last epoch asked for is kept.
  std::vector<uint32_t> Batch(int64_t epoch, int64_t batch);

 private:
  SamplerOptions options_;
  int64_t cached_epoch_ = -1;
  std::vector<uint32_t> order_;  // [num_examples]
};

}  // namespace cairn::data
