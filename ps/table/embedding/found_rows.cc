#include "ps/table/embedding/found_rows.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cairn::ps {

FoundRows::~FoundRows() {
  MutexLock lock(mutex_);
  for (const Read& read : reads_) budget_->Give(BytesOf(read.ids.size()));
}

void FoundRows::Keep(absl::Span<const int64_t> ids, std::vector<float*> rows, int64_t generation) {
  if (!budget_->TryTake(BytesOf(ids.size()))) return;
  Read read = {.ids = {ids.begin(), ids.end()}, .rows = std::move(rows), .generation = generation};
  MutexLock lock(mutex_);
  reads_.push_back(std::move(read));
  if (reads_.size() <= kMaxReads) return;
  budget_->Give(BytesOf(reads_.front().ids.size()));
  reads_.pop_front();
}

std::vector<float*> FoundRows::Take(absl::Span<const int64_t> ids, int64_t generation) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(reads_.rbegin(), reads_.rend(), [&](const Read& read) {
    return read.generation == generation && absl::MakeConstSpan(read.ids) == ids;
  });
  if (found == reads_.rend()) return {};
  std::vector<float*> rows = std::move(found->rows);
  budget_->Give(BytesOf(found->ids.size()));
  reads_.erase(std::next(found).base());
  return rows;
}

}  // namespace cairn::ps
