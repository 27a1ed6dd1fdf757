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
    if (missed_ >= kMaxReads) return;
  }
  if (!budget_->TryTake(BytesOf(ids.size()))) return;
  Read read = {.ids = {ids.begin(), ids.end()}, .rows = std::move(rows)};
  MutexLock lock(mutex_);
  reads_.push_back(std::move(read));
  if (reads_.size() <= kMaxReads) return;
  budget_->Give(BytesOf(reads_.front().ids.size()));
  reads_.pop_front();
}

std::vector<float*> FoundRows::Take(absl::Span<const int64_t> ids) {
  if (ids.empty()) return {};
  MutexLock lock(mutex_);
  const auto found = std::find_if(reads_.rbegin(), reads_.rend(),
                                  [&](const Read& read) { return absl::MakeConstSpan(read.ids) == ids; });
  if (found == reads_.rend()) {
    // A backup applies updates without reads, which do not count.
    if (!reads_.empty() && ++missed_ == kMaxReads) DropAll();
    return {};
  }
  std::vector<float*> rows = std::move(found->rows);
  budget_->Give(BytesOf(found->ids.size()));
  reads_.erase(std::next(found).base());
  missed_ = 0;
  return rows;
}

bool FoundRows::Clear() {
  MutexLock lock(mutex_);
  if (reads_.empty()) return false;
  DropAll();
  return true;
}

void FoundRows::DropAll() {
  for (const Read& read : reads_) budget_->Give(BytesOf(read.ids.size()));
  reads_.clear();
}

}  // namespace cairn::ps
