// Finds the rows of one store by key: extendible hashing (Fagin et al. 1979) of segments, each an open-addressed table
// of cache lines.
//
// A segment holds the keys of a range of hashes. A directory, indexed by the top bits of the hash, leads to it. A
// segment that reaches its limit grows alone: it doubles its lines, and beyond kMaxSplitLines it splits in two. So no
// call stops for more than one segment, about ten thousand rows. Limits differ between segments, lest all grow at once.
// A segment never holds less than one bucket; if that has very many rows, the segment doubles further.
//
// Owned by a RowStore, which serializes its calls. The index refers to rows by RowRef and reads their keys there.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/memory/aligned_buffer.h"
#include "embedding/store/bucket_range.h"
#include "embedding/store/index_line.h"
#include "embedding/store/page_pool.h"
#include "embedding/store/row_arena.h"

namespace cairn::embedding {

class RowIndex {
 public:
  static constexpr RowRef kNone = ~RowRef{0};
  // Segments beyond these lines, 64 KiB, split.
  static constexpr uint32_t kMaxSplitLines = 1024;

  // For keys of `buckets`, which is not empty. `rows` and `pool` must outlive the index.
  RowIndex(BucketRange buckets, const RowArena& rows, PagePool& pool);
  RowIndex(const RowIndex&) = delete;
  RowIndex& operator=(const RowIndex&) = delete;

  // Fetches the line in which a search for this hash begins into the caches.
  CAIRN_PREFETCHES void PrefetchLine(uint64_t hash) const {
    const DirectoryEntry& entry = EntryOf(hash);
    __builtin_prefetch(entry.lines + (hash & entry.mask));
  }
  // Fetches the rows whose tags match in that line.
  CAIRN_PREFETCHES void PrefetchRow(uint64_t hash) const {
    const DirectoryEntry& entry = EntryOf(hash);
    const IndexLine& line = entry.lines[hash & entry.mask];
    for (uint32_t match = line.Matching(TagOf(hash)); match != 0; match &= match - 1)
      rows_.Prefetch(line.rows[std::countr_zero(match)]);
  }

  // The row of `key`, whose hash is given; kNone: it has none.
  RowRef Find(uint64_t hash, int64_t key) const { return Search(hash, key).row; }

  // Ensures that the next Insert() of this hash has room. RESOURCE_EXHAUSTED, without effect, if there is no memory.
  absl::Status MakeRoom(uint64_t hash) {
    Segment& segment = segments_[EntryOf(hash).segment];
    if (segment.rows < segment.limit) return absl::OkStatus();
    return Grow(hash);
  }
  // The key of `row` has no row yet, and MakeRoom() succeeded since the last Insert().
  void Insert(uint64_t hash, RowRef row);
  // Removes the key and returns its row; kNone: it had none.
  RowRef Erase(uint64_t hash, int64_t key);

  int64_t size() const { return size_; }
  // Bytes of lines, used or kept for reuse, and of the directory.
  int64_t bytes() const { return bytes_; }

  // Calls visit(buckets, rows) for every segment with a bucket of `range`, by rising buckets: the buckets of the
  // segment, which may exceed `range`, and its rows, in no defined order. `range` lies in the buckets of the index.
  using VisitSegment = absl::FunctionRef<void(BucketRange, const std::vector<RowRef>&)>;
  void VisitSegments(BucketRange range, VisitSegment visit) const;

 private:
  struct Segment {
    IndexLine* lines = nullptr;
    uint32_t mask = 0;  // number of lines - 1
    int depth = 0;      // its hashes agree in as many top bits
    int64_t rows = 0;
    int64_t limit = 0;  // grows before it has more rows
    AlignedBuffer own;  // the memory of the lines; empty: that of first_line_ or a part of a chunk
  };
  // The lines of a segment, for searches. Segments with fewer bits than the directory have several entries.
  struct DirectoryEntry {
    IndexLine* lines;
    uint32_t mask;
    uint32_t segment;
  };
  struct Place {
    RowRef row;
    IndexLine* line;
    int entry;
  };

  // The hash without what all keys of the index have in common: the buckets before its range, and the bits by which
  // the range is smaller than the table.
  uint64_t PositionOf(uint64_t hash) const { return (hash - first_hash_) << range_shift_; }
  size_t EntryNumberOf(uint64_t hash) const { return PositionOf(hash) >> 1 >> directory_shift_; }
  const DirectoryEntry& EntryOf(uint64_t hash) const { return directory_[EntryNumberOf(hash)]; }
  static uint8_t TagOf(uint64_t hash) { return static_cast<uint8_t>(hash >> 24); }

  Place Search(uint64_t hash, int64_t key) const;
  absl::Status Grow(uint64_t hash);
  absl::Status DoubleLines(size_t entry);
  absl::Status Split(size_t entry);
  absl::Status DoubleDirectory();
  // Empty lines: a power of two of them.
  absl::StatusOr<Segment> MakeSegment(uint32_t num_lines, int depth);
  void FreeSegment(Segment& segment);
  absl::StatusOr<IndexLine*> TakeSplitLines();
  // Adds an entry to a segment with room.
  static void Add(Segment& segment, uint64_t hash, RowRef row);
  // Calls add(hash, row) for all rows of a segment.
  template <typename AddRow>
  void ForEachRow(const Segment& segment, AddRow add) const;
  // The directory's entries of the segment that has `entry`: the first, and their number.
  size_t FirstEntryOf(size_t entry, const Segment& segment) const;
  size_t EntriesOf(const Segment& segment) const { return size_t{1} << (directory_bits_ - segment.depth); }
  void PointTo(size_t first_entry, uint32_t segment);
  // The buckets of the hashes that the directory's entries [first, first + count) stand for.
  BucketRange BucketsOf(size_t first, size_t count) const;

  const BucketRange buckets_;
  const RowArena& rows_;
  PagePool& pool_;
  const uint64_t first_hash_;
  const int range_bits_;   // the least number of bits that tell the buckets apart
  const int range_shift_;  // 16 - range_bits_

  int directory_bits_ = 0;
  int directory_shift_ = 63;               // 63 - directory_bits_
  std::vector<DirectoryEntry> directory_;  // [the top directory_bits_ of a position]
  std::vector<Segment> segments_;
  std::vector<IndexLine*> free_lines_;  // kMaxSplitLines each
  IndexLine first_line_ = {};           // the memory of the first segment
  int64_t segments_made_ = 0;
  int64_t size_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace cairn::embedding
