#include "embedding/store/row_store.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "embedding/keys/key_hash.h"

namespace cairn::embedding {

RowStore::RowStore(Options options)
    : options_(std::move(options)),
      pool_(options_.memory),
      arena_(options_.shape.floats(), pool_),
      index_(options_.buckets, arena_, pool_) {
  CAIRN_CHECK(options_.shape.dim >= 1 && options_.shape.dim <= kMaxDim && options_.shape.slots >= 0);
}

template <typename VisitKey>
void RowStore::ForEachKey(absl::Span<const int64_t> keys, VisitKey visit) const {
  // The line of a key is fetched 2 * kAhead keys before the visit, and its row kAhead keys before.
  constexpr size_t kAhead = 24;
  constexpr size_t kKept = 64;  // more than 2 * kAhead
  std::array<uint64_t, kKept> hashes;
  const size_t n = keys.size();
  for (size_t i = 0; i < n + 2 * kAhead; ++i) {
    if (i < n) {
      const uint64_t hash = HashKey(keys[i]);
      hashes[i % kKept] = hash;
      index_.PrefetchLine(hash);
    }
    if (i >= kAhead && i - kAhead < n) index_.PrefetchRow(hashes[(i - kAhead) % kKept]);
    if (i >= 2 * kAhead && !visit(i - 2 * kAhead, hashes[(i - 2 * kAhead) % kKept])) return;
  }
}

void RowStore::Find(absl::Span<const int64_t> keys, absl::Span<float*> rows) const {
  CAIRN_CHECK(keys.size() == rows.size());
  ForEachKey(keys, [&](size_t i, uint64_t hash) {
    const RowRef row = index_.Find(hash, keys[i]);
    rows[i] = row == RowIndex::kNone ? nullptr : arena_.FloatsOf(row);
    return true;
  });
}

absl::Status RowStore::FindOrAdd(uint64_t hash, int64_t key, RowRef* row, bool* added) {
  *row = index_.Find(hash, key);
  *added = *row == RowIndex::kNone;
  if (!*added) return absl::OkStatus();
  CAIRN_CHECK(options_.buckets.Contains(BucketOfHash(hash)));
  CAIRN_RETURN_IF_ERROR(arena_.MakeRoom());
  CAIRN_RETURN_IF_ERROR(index_.MakeRoom(hash));
  *row = arena_.Add(key);
  index_.Insert(hash, *row);
  return absl::OkStatus();
}

absl::Status RowStore::FindOrInsert(absl::Span<const int64_t> keys, absl::Span<float*> rows,
                                    std::vector<int32_t>* inserted) {
  CAIRN_CHECK(keys.size() == rows.size());
  inserted->clear();
  absl::Status status;
  ForEachKey(keys, [&](size_t i, uint64_t hash) {
    RowRef row;
    bool added;
    status = FindOrAdd(hash, keys[i], &row, &added);
    if (!status.ok()) return false;
    rows[i] = arena_.FloatsOf(row);
    if (added) inserted->push_back(static_cast<int32_t>(i));
    return true;
  });
  if (status.ok()) return status;
  for (const int32_t i : *inserted) arena_.Free(index_.Erase(HashKey(keys[i]), keys[i]));
  inserted->clear();
  return Annotate(status, absl::StrCat("table '", options_.table, "', ", index_.size(), " rows"));
}

int64_t RowStore::Erase(absl::Span<const int64_t> keys) {
  int64_t erased = 0;
  ForEachKey(keys, [&](size_t i, uint64_t hash) {
    const RowRef row = index_.Erase(hash, keys[i]);
    if (row != RowIndex::kNone) {
      arena_.Free(row);
      ++erased;
    }
    return true;
  });
  return erased;
}

void RowStore::VisitSorted(BucketRange range, Visit visit) const {
  struct Keyed {
    int bucket;
    int64_t key;
    RowRef row;
  };
  std::vector<Keyed> sorted;
  std::vector<int64_t> keys;
  std::vector<const float*> floats;
  index_.VisitSegments(range, [&](BucketRange, const std::vector<RowRef>& rows) {
    sorted.clear();
    for (const RowRef row : rows) arena_.PrefetchKey(row);
    for (const RowRef row : rows) {
      const int64_t key = arena_.KeyOf(row);
      if (const int bucket = BucketOf(key); range.Contains(bucket)) sorted.push_back({bucket, key, row});
    }
    if (sorted.empty()) return;
    std::sort(sorted.begin(), sorted.end(), [](const Keyed& a, const Keyed& b) {
      return std::tie(a.bucket, a.key) < std::tie(b.bucket, b.key);
    });
    keys.clear();
    floats.clear();
    for (const Keyed& row : sorted) {
      keys.push_back(row.key);
      floats.push_back(arena_.FloatsOf(row.row));
    }
    visit(keys, floats);
  });
}

int64_t RowStore::CountRows(BucketRange range) const {
  int64_t count = 0;
  index_.VisitSegments(range, [&](BucketRange covered, const std::vector<RowRef>& rows) {
    if (covered.begin >= range.begin && covered.end <= range.end) {
      count += static_cast<int64_t>(rows.size());
      return;
    }
    for (const RowRef row : rows) count += range.Contains(BucketOf(arena_.KeyOf(row))) ? 1 : 0;
  });
  return count;
}

}  // namespace cairn::embedding
