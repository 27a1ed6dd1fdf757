// Prepares batches ahead of the computation, on its own thread: examples are read, scaled and, if the data
// set requires it, augmented.
//
// Owned by a trainer, which calls Next() from one thread. The loader's thread only computes, so callers never
// wait longer than it takes to prepare a batch.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "common/system/thread.h"
#include "common/trace/trace.h"
#include "data/dataset.h"
#include "data/input_rows.h"
#include "data/length_buckets.h"
#include "data/sampler.h"

namespace cairn::data {

// Positions [first, first + count) of an epoch's order.
struct Run {
  int64_t epoch = 0;
  int64_t first = 0;
  int64_t count = 0;

  friend bool operator==(const Run&, const Run&) = default;
};

struct Batch {
  int64_t epoch = 0;
  // The batch's number in the epoch; for a run, the number of the batch in which the run begins.
  int64_t index = 0;
  int64_t examples = 0;        // may be 0 in the last batch of an epoch
  std::vector<uint32_t> rows;  // [examples] their indices in the data set
  // In each buffer the first `examples` rows are valid.
  InputRows inputs;       // [batch_size, Dataset::input_specs()]
  AlignedBuffer targets;  // [batch_size, num_targets]
  AlignedBuffer weights;  // [batch_size, num_weights]; empty if every example weighs 1
  // Floats of an example. With buckets, those of the longest bucket of the batch's examples.
  int64_t num_targets = 0, num_weights = 0;
};

class BatchLoader {
 public:
  // `dataset` must outlive the loader. `sampler` must be valid and sample `dataset.size()` examples. Keeps up
  // to `depth` batches ready (at least 1; memory: depth + 1 batches). `trace` and `buckets` may be null, and must
  // outlive the loader. With buckets, whose bucket_of the sampler has, a batch has the form of the longest bucket of
  // its examples. Throws OutOfMemory.
  BatchLoader(const Dataset& dataset, const SamplerOptions& sampler, int depth = 2,
              TraceRecorder* trace = nullptr, const LengthBuckets* buckets = nullptr);
  // Waits for the batch being prepared, if any.
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  int64_t batches_per_epoch() const { return batches_per_epoch_; }

  // The buffers of the inputs, targets and weights of all batches, except for ragged inputs. They stay in place during
  // the loader's lifetime.
  const std::vector<absl::Span<const float>>& buffers() const { return buffers_; }

  // The batch at `position` in the endless sequence of epochs: epoch position / batches_per_epoch(), batch
  // position % batches_per_epoch(). Consecutive positions use prepared batches; any other position restarts
  // the preparation there. Blocks until the batch is ready. The batch stays valid until the next call.
  const Batch& Next(int64_t position);
  // The batch of `run`, which must have at most batch_size examples. Blocks until it is ready; it stays valid
  // until the next call. Afterwards the runs of `ahead` are prepared. A loader serves either positions or
  // runs, not both.
  const Batch& Next(const Run& run, absl::Span<const Run> ahead);
  // The batch that follows `ahead` batches after the last result of Next(), from 1 to `depth` or to the number of runs
  // ahead. Blocks until it is ready. The memory of its examples stays valid, and in its place, while Next() is called
  // for the batches in their order, up to the call after the one that returns this batch.
  const Batch& Ahead(int ahead) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Identifies the examples of a batch: by a position in the sampler's order, or as a run of consecutive
  // examples.
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
  // Schedules `piece` and then `ahead`, and keeps batches of these pieces that are ready or being filled.
  // Returns the batch of `piece`.
  const Batch& Next(const Piece& piece, absl::Span<const Piece> ahead) ABSL_LOCKS_EXCLUDED(mutex_);
  void Fill(const Piece& piece, Batch& batch);
  // Cuts the batch to the form of its examples.
  void CutToBucket(Batch& batch) const;

  Sampler sampler_;  // used only by the loader's thread
  Batch current_;    // the last result of Next(); used only by the caller

  // Constant after construction.
  const Dataset& dataset_;
  const Augmentation augmentation_;
  const uint64_t seed_;  // seed of the augmentation
  const int64_t batches_per_epoch_;
  const int64_t batch_size_;
  const int depth_;
  TraceRecorder* const trace_;
  const LengthBuckets* const buckets_;
  std::vector<absl::Span<const float>> buffers_;

  Mutex mutex_;
  CondVar work_;         // the loader's thread waits for a spare batch, a wanted piece, or the end
  CondVar batch_ready_;  // Next() waits for a batch
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // The pieces in the order in which they will be requested: first those whose batches are ready, then the
  // piece whose batch is being filled, then the pieces that are still to be filled.
  std::deque<Ready> ready_ ABSL_GUARDED_BY(mutex_);
  std::optional<Piece> filling_ ABSL_GUARDED_BY(mutex_);  // nullopt: none, or its result will be discarded
  std::deque<Piece> wanted_ ABSL_GUARDED_BY(mutex_);
  std::vector<Batch> spare_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;  // last: it starts when all other members exist
};

}  // namespace cairn::data
