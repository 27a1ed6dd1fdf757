#include "embedding/store/row_store.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "embedding/keys/key_hash.h"

namespace cairn::embedding {
namespace {

// Keys whose rows are searched for before the missing ones are added.
constexpr size_t kBlock = 256;

// The greatest load of the index. An entry that passed its full line costs a third line from memory, so rows that are
// long beside an entry have a sparser index.
double MaxLoad(const RowShape& shape) {
  return shape.floats() >= 8 ? 0.58 : 0.82;
}

}  // namespace

double RowStore::IndexBytesPerRow(const RowShape& shape) {
  return shape.floats() >= 8 ? 26 : 18;
}

double RowStore::BytesOfPart(const RowShape& shape, int64_t rows, int servers) {
  const double row_bytes = shape.floats() * sizeof(float) + IndexBytesPerRow(shape);
  return std::ceil(static_cast<double>(rows) / servers) * row_bytes;
}

absl::Status RowStore::CheckDim(int64_t dim) {
  if (dim >= 1 && dim <= kMaxDim) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rows of ", dim, " elements, must have 1 to ", kMaxDim));
}

RowStore::RowStore(Options options)
    : options_(std::move(options)),
      pool_(options_.memory),
      arena_(options_.shape.floats(), pool_),
      index_(options_.buckets, MaxLoad(options_.shape), pool_) {
  CAIRN_CHECK(options_.shape.dim >= 1 && options_.shape.dim <= kMaxDim && options_.shape.slots >= 0);
}

void RowStore::Find(absl::Span<const int64_t> keys, absl::Span<float*> rows) const {
  CAIRN_CHECK(keys.size() == rows.size());
  // Each key passes three steps, kAhead keys apart, so that the memory that a step reads has arrived: fetch the home
  // line; find the row there and fetch it, or else the next line; note the row, or search for it in all lines.
  constexpr size_t kAhead = 20;
  constexpr size_t kKept = 64;  // more than 2 * kAhead
  struct Search {
    uint64_t hash;
    const IndexLine* line;
    RowRef row;
  };
  std::array<Search, kKept> searches;
  const size_t n = keys.size();
  for (size_t i = 0; i < n + 2 * kAhead; ++i) {
    if (i < n) {
      const uint64_t hash = HashKey(keys[i]);
      const IndexLine* const line = index_.HomeLine(hash);
      __builtin_prefetch(line, 0, 2);  // into the second-level cache: the first level can await few lines
      searches[i % kKept] = {hash, line, kNoRow};
    }
    if (i >= kAhead && i - kAhead < n) {
      Search& search = searches[(i - kAhead) % kKept];
      search.row = search.line->Find(search.hash);
      if (search.row != kNoRow)
        arena_.Prefetch(search.row);
      else
        __builtin_prefetch(search.line + 1);
    }
    if (i >= 2 * kAhead) {
      const Search& search = searches[(i - 2 * kAhead) % kKept];
      RowRef row = search.row;
      if (row == kNoRow) {
        row = index_.Find(search.hash);
        if (row != kNoRow) arena_.Prefetch(row);
      }
      rows[i - 2 * kAhead] = row == kNoRow ? nullptr : arena_.FloatsOf(row);
    }
  }
}

absl::Status RowStore::Insert(int64_t key, float** row) {
  const uint64_t hash = HashKey(key);
  CAIRN_CHECK(options_.buckets.Contains(BucketOfHash(hash)));
  CAIRN_RETURN_IF_ERROR(arena_.MakeRoom());
  CAIRN_RETURN_IF_ERROR(index_.MakeRoom(hash));
  const RowRef added = arena_.Add();
  index_.Insert(hash, added);
  *row = arena_.FloatsOf(added);
  return absl::OkStatus();
}

absl::Status RowStore::FindOrInsert(absl::Span<const int64_t> keys, absl::Span<float*> rows,
                                    std::vector<int32_t>* inserted) {
  CAIRN_CHECK(keys.size() == rows.size());
  inserted->clear();
  absl::Status status;
  for (size_t first = 0; first < keys.size() && status.ok(); first += kBlock) {
    const size_t end = std::min(first + kBlock, keys.size());
    Find(keys.subspan(first, end - first), rows.subspan(first, end - first));
    for (size_t i = first; i < end && status.ok(); ++i) {
      if (rows[i] != nullptr) continue;
      if (const RowRef row = index_.Find(HashKey(keys[i])); row != kNoRow) {  // an earlier key of the block
        rows[i] = arena_.FloatsOf(row);
        continue;
      }
      status = Insert(keys[i], &rows[i]);
      if (status.ok()) inserted->push_back(static_cast<int32_t>(i));
    }
  }
  if (status.ok()) return status;
  for (const int32_t i : *inserted) arena_.Free(index_.Erase(HashKey(keys[i])));
  inserted->clear();
  return Annotate(status, absl::StrCat("table '", options_.table, "', ", index_.size(), " rows"));
}

int64_t RowStore::Erase(absl::Span<const int64_t> keys) {
  int64_t erased = 0;
  for (size_t first = 0; first < keys.size(); first += kBlock) {
    const absl::Span<const int64_t> block = keys.subspan(first, kBlock);
    for (const int64_t key : block) __builtin_prefetch(index_.HomeLine(HashKey(key)));
    for (const int64_t key : block) {
      const RowRef row = index_.Erase(HashKey(key));
      if (row == kNoRow) continue;
      arena_.Free(row);
      ++erased;
    }
  }
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
  index_.VisitSegments(range, [&](BucketRange, const std::vector<RowIndex::Entry>& entries) {
    sorted.clear();
    for (const RowIndex::Entry& entry : entries) {
      const int bucket = BucketOfHash(entry.hash);
      if (range.Contains(bucket)) sorted.push_back({bucket, KeyOfHash(entry.hash), entry.row});
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

}  // namespace cairn::embedding
