// The rows that the last reads of a table found. The gradients of a batch name the same ids in the same order as
// the read of the batch's rows, so their update needs no second search.
//
// With several workers, the ids of an update are those of several reads, and no read has them all: after kMaxReads
// updates without a read of their ids, nothing is kept any more. Evaluations read too, and no update follows.
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

  // Keeps `rows` [id], where null is a row that does not exist, if the budget has room. Of more than kMaxReads reads,
  // the oldest is dropped.
  void Keep(absl::Span<const int64_t> ids, std::vector<float*> rows) ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes and returns the rows of the latest read of these ids, in this order. Empty if there is none.
  std::vector<float*> Take(absl::Span<const int64_t> ids) ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops everything: before rows cease to exist, and if their memory is needed. Returns whether there was anything.
  bool Clear() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Read {
    std::vector<int64_t> ids;
    std::vector<float*> rows;
  };

  void DropAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<optim::MemoryBudget> budget_;
  Mutex mutex_;
  std::deque<Read> reads_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  size_t missed_ ABSL_GUARDED_BY(mutex_) = 0;       // updates since the last read that was taken
};

}  // namespace cairn::ps
