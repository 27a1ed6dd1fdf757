// Prepares batches ahead of the computation, on one thread of its own: examples read, scaled and, where the
// data set asks for it, augmented.
//
// Owned by a trainer, which calls Next() from one thread. The loader's thread only computes, so nobody waits
// for it longer than a batch takes.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/types/span.h"
#include "common/core/aligned_buffer.h"
#include "common/core/mutex.h"
#include "common/core/thread.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"

namespace cairn::data {

struct Batch {
  int64_t epoch = 0;
  int64_t index = 0;     // within the epoch
  int64_t examples = 0;  // perhaps 0 in the last batch of an epoch
  // Of all buffers the first `examples` rows are valid.
  AlignedBuffer inputs;   // [batch_size, example_shape]
  AlignedBuffer targets;  // [batch_size, num_targets]
  AlignedBuffer weights;  // [batch_size]; empty where every example weighs 1
};

class BatchLoader {
 public:
  // `dataset` must outlive the loader; `sampler` must be valid and sample `dataset.size()` examples. Keeps up
  // to `depth` batches ready (at least 1; memory: depth + 1 batches).
  BatchLoader(const Dataset& dataset, const SamplerOptions& sampler, int depth = 2);
  // Waits for the batch being prepared, if any.
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  int64_t batches_per_epoch() const { return batches_per_epoch_; }

  // Where the inputs, targets and weights of all batches lie, for as long as the loader lives.
  const std::vector<absl::Span<const float>>& buffers() const { return buffers_; }

  // The batch at `position` of the endless sequence of epochs: epoch position / batches_per_epoch(), batch
  // position % batches_per_epoch(). Calls with consecutive positions are answered from what was prepared; any
  // other position restarts the preparation there. The batch stays valid until the next call. Blocks until it
  // is ready.
  const Batch& Next(int64_t position);

 private:
  void Run();
  void Fill(int64_t position, Batch& batch);

  Sampler sampler_;  // the thread's alone
  Batch current_;    // what Next() returned last; the caller's alone

  // Constant after construction.
  const Dataset& dataset_;
  const Augmentation augmentation_;
  const uint64_t seed_;  // of the augmentation
  const int64_t example_elements_;
  const int64_t batches_per_epoch_;
  std::vector<absl::Span<const float>> buffers_;

  Mutex mutex_;
  CondVar work_;         // the thread waits for a spare batch, a first position, or the end
  CondVar batch_ready_;  // Next() waits for a batch
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Where ready_ begins and where the thread goes on; -1 until the first Next().
  int64_t ready_position_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t fill_position_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t restarts_ ABSL_GUARDED_BY(mutex_) = 0;     // a batch begun before the last restart is thrown away
  std::deque<Batch> ready_ ABSL_GUARDED_BY(mutex_);  // positions ready_position_, ready_position_ + 1, ...
  std::vector<Batch> spare_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;  // last: everything above exists when it starts
};

}  // namespace cairn::data
