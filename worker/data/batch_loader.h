// Prepares batches ahead of the computation, on one thread of its own: examples read, scaled and, where the
// data set asks for it, augmented.
//
// Owned by a trainer, which calls Next() from one thread. The loader's thread only computes, so nobody waits
// for it longer than a batch takes.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/core/aligned_buffer.h"
#include "common/core/mutex.h"
#include "common/core/thread.h"
#include "common/core/trace.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"

namespace cairn::data {

// Places [first, first + count) of an epoch's order.
struct Run {
  int64_t epoch = 0;
  int64_t first = 0;
  int64_t count = 0;

  friend bool operator==(const Run&, const Run&) = default;
};

struct Batch {
  int64_t epoch = 0;
  int64_t index = 0;           // within the epoch; of a run, the number of the batch that it begins in
  int64_t examples = 0;        // perhaps 0 in the last batch of an epoch
  std::vector<uint32_t> rows;  // [examples] their places in the data set
  // Of all buffers the first `examples` rows are valid.
  AlignedBuffer inputs;   // [batch_size, example_shape]
  AlignedBuffer targets;  // [batch_size, num_targets]
  AlignedBuffer weights;  // [batch_size]; empty where every example weighs 1
};

class BatchLoader {
 public:
  // `dataset` must outlive the loader; `sampler` must be valid and sample `dataset.size()` examples. Keeps up
  // to `depth` batches ready (at least 1; memory: depth + 1 batches). `trace` may be null, and outlives it.
  // Throws OutOfMemory.
  BatchLoader(const Dataset& dataset, const SamplerOptions& sampler, int depth = 2,
              TraceRecorder* trace = nullptr);
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
  // The batch of this run, at most batch_size examples, and likewise; then those of `ahead` are prepared. A
  // loader is asked for positions or for runs, not for both.
  const Batch& Next(const Run& run, absl::Span<const Run> ahead);

 private:
  // What a batch is made of: a position's, or a run.
  struct Piece {
    int64_t position = 0;
    std::optional<data::Run> run{};
    friend bool operator==(const Piece&, const Piece&) = default;
  };
  struct Ready {
    Piece piece;
    Batch batch;
  };

  void Prepare();
  // Makes `piece` the next one to be ready, and `ahead` those after it. What is ready or under way of them
  // stays so.
  const Batch& Next(const Piece& piece, absl::Span<const Piece> ahead) ABSL_LOCKS_EXCLUDED(mutex_);
  void Fill(const Piece& piece, Batch& batch);

  Sampler sampler_;  // the thread's alone
  Batch current_;    // what Next() returned last; the caller's alone

  // Constant after construction.
  const Dataset& dataset_;
  const Augmentation augmentation_;
  const uint64_t seed_;  // of the augmentation
  const int64_t example_elements_;
  const int64_t batches_per_epoch_;
  const int64_t batch_size_;
  const int depth_;
  TraceRecorder* const trace_;
  std::vector<absl::Span<const float>> buffers_;

  Mutex mutex_;
  CondVar work_;         // the thread waits for a spare batch, a first position, or the end
  CondVar batch_ready_;  // Next() waits for a batch
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // In the order in which they will be asked for: ready, being filled, to be filled. Only the first ones are
  // ready.
  std::deque<Ready> ready_ ABSL_GUARDED_BY(mutex_);
  std::optional<Piece> filling_ ABSL_GUARDED_BY(mutex_);  // none: or it is thrown away when it is done
  std::deque<Piece> wanted_ ABSL_GUARDED_BY(mutex_);
  std::vector<Batch> spare_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;  // last: everything above exists when it starts
};

}  // namespace cairn::data
