// The rows that the last reads of a table found. The gradients of a batch name the same ids in the same order as the
// read of the batch's rows, so their update needs no second search.
//
// Thread-safe: reads run concurrently. Its memory is counted in the job's budget, and nothing is kept beyond it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/core/mutex.h"
#include "optim/store/memory_budget.h"

namespace cairn::ps {

class FoundRows {
 public:
  // The number of reads that are kept: more than the workers whose batches are usually in progress.
  static constexpr size_t kMaxReads = 8;

  // The memory of a read of so many ids.
  static int64_t BytesOf(size_t ids) {
    return static_cast<int64_t>(ids * (sizeof(int64_t) + sizeof(float*)));
  }

  explicit FoundRows(std::shared_ptr<optim::MemoryBudget> budget) : budget_(std::move(budget)) {}
  ~FoundRows();
  FoundRows(const FoundRows&) = delete;
  FoundRows& operator=(const FoundRows&) = delete;

  // Keeps `rows` [id], where null is a row that does not exist, instead of the oldest read. `generation`: a number that
  // changes when a row ceases to exist.
  void Keep(absl::Span<const int64_t> ids, std::vector<float*> rows, int64_t generation)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes and returns the rows of the latest read of these ids, in this order. Empty if there is none of this
  // generation.
  std::vector<float*> Take(absl::Span<const int64_t> ids, int64_t generation) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Read {
    std::vector<int64_t> ids;
    std::vector<float*> rows;
    int64_t generation;
  };

  const std::shared_ptr<optim::MemoryBudget> budget_;
  Mutex mutex_;
  std::deque<Read> reads_ ABSL_GUARDED_BY(mutex_);  // the oldest first
};

}  // namespace cairn::ps
