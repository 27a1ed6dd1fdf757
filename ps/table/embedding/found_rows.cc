#include "ps/table/embedding/found_rows.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cairn::ps {

FoundRows::~FoundRows() {
  Clear();
}

void FoundRows::Keep(absl::Span<const int64_t> ids, std::vector<float*> rows) {
  {
    MutexLock lock(mutex_);
    if (dropped_ >= kMaxReads) return;
  }
  if (!budget_->TryTake(BytesOf(ids.size()))) return;
  Read read = {.ids = {ids.begin(), ids.end()}, .rows = std::move(rows)};
  MutexLock lock(mutex_);
  reads_.push_back(std::move(read));
  if (reads_.size() <= kMaxReads) return;
  budget_->Give(BytesOf(reads_.front().ids.size()));
  reads_.pop_front();
  if (++dropped_ < kMaxReads) return;
  for (const Read& kept : reads_) budget_->Give(BytesOf(kept.ids.size()));
  reads_.clear();
}

std::vector<float*> FoundRows::Take(absl::Span<const int64_t> ids) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(reads_.rbegin(), reads_.rend(),
                                  [&](const Read& read) { return absl::MakeConstSpan(read.ids) == ids; });
  if (found == reads_.rend()) return {};
  std::vector<float*> rows = std::move(found->rows);
  budget_->Give(BytesOf(found->ids.size()));
  reads_.erase(std::next(found).base());
  dropped_ = 0;
  return rows;
}

bool FoundRows::Clear() {
  MutexLock lock(mutex_);
  if (reads_.empty()) return false;
  for (const Read& read : reads_) budget_->Give(BytesOf(read.ids.size()));
  reads_.clear();
  return true;
}

}  // namespace cairn::ps
