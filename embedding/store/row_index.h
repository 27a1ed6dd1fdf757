// Finds the rows of one store by the hash of their key: extendible hashing (Fagin et al. 1979) of segments, each an
// open-addressed table of cache lines.
//
// A segment holds the keys of a range of hashes. A directory, indexed by the top bits of the hash, leads to it. The
// lines of a segment lie in 1 to 7 pages of 1024 lines. A segment that reaches its limit grows alone, by one page; one
// with 7 pages splits in two. So no call stops for more than one segment, about twenty thousand rows, and the share of
// used entries stays within narrow bounds. Limits differ between segments, lest all grow at once. A segment never
// holds less than one bucket; if that has very many rows, the pages of the segment double.
//
// Owned by a RowStore, which serializes its calls.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/memory/aligned_buffer.h"
#include "embedding/store/bucket_range.h"
#include "embedding/store/index_line.h"
#include "embedding/store/page_pool.h"

namespace cairn::embedding {

class RowIndex {
 public:
  // The pages of a segment. The number of a line in its page has kPageBits, but fewer in a small store.
  static constexpr int kMaxPages = 7;
  static constexpr int kPageBits = 10;

  struct Entry {
    uint64_t hash;
    RowRef row;
  };

  // For keys of `buckets`, which is not empty. A segment grows when a share of up to `max_load` of its entries is in
  // use, 0.5 to 0.9: low loads make searches fast, high ones save memory. `pool` must outlive the index.
  RowIndex(BucketRange buckets, double max_load, PagePool& pool);
  RowIndex(const RowIndex&) = delete;
  RowIndex& operator=(const RowIndex&) = delete;

  // The line in which a search for this hash begins. Valid until the next MakeRoom().
  const IndexLine* HomeLine(uint64_t hash) const {
    const Segment& segment = segments_[directory_[EntryNumberOf(hash)]];
    return &segment.line(segment.HomeOf(hash));
  }

  // The row of this hash; kNoRow: it has none.
  RowRef Find(uint64_t hash) const { return Search(hash).row; }

  // Ensures that the next Insert() of this hash has room. RESOURCE_EXHAUSTED, without effect, if there is no memory.
  absl::Status MakeRoom(uint64_t hash) {
    const Segment& segment = segments_[directory_[EntryNumberOf(hash)]];
    if (segment.rows < segment.limit) return absl::OkStatus();
    return Grow(hash);
  }
  // The hash has no row yet, and MakeRoom() succeeded since the last Insert().
  void Insert(uint64_t hash, RowRef row);
  // Removes the hash and returns its row; kNoRow: it had none.
  RowRef Erase(uint64_t hash);

  int64_t size() const { return size_; }
  // Bytes of lines, used or kept for reuse, and of the directory.
  int64_t bytes() const { return bytes_; }

  // Calls visit(buckets, entries) for every segment with a bucket of `range`, by rising buckets: the buckets of the
  // segment, which may exceed `range`, and its entries, in no defined order. `range` lies in the buckets of the index.
  using VisitSegment = absl::FunctionRef<void(BucketRange, const std::vector<Entry>&)>;
  void VisitSegments(BucketRange range, VisitSegment visit) const;

 private:
  struct Size {
    int pages = 1;
    int page_bits = 0;

    uint32_t lines() const { return static_cast<uint32_t>(pages) << page_bits; }
    int64_t entries() const { return int64_t{lines()} * IndexLine::kEntries; }
  };
  // Searches read the first cache line of a segment only.
  struct alignas(64) Segment {
    std::array<IndexLine*, kMaxPages> pages = {};
    uint32_t num_lines = 1;
    uint32_t page_bits = 0;

    int64_t rows = 0;
    int64_t limit = 0;  // grows before it has more rows
    Size size;
    int depth = 0;      // its hashes agree in as many top bits
    AlignedBuffer own;  // the memory of pages of another size than 2^kPageBits lines

    // The low half of the hash as a fraction of the lines: hashes that rise in this half have rising lines.
    uint32_t HomeOf(uint64_t hash) const {
      return static_cast<uint32_t>((hash & 0xffffffff) * num_lines >> 32);
    }
    uint32_t After(uint32_t i) const { return i + 1 == num_lines ? 0 : i + 1; }
    IndexLine& line(uint32_t i) const { return pages[i >> page_bits][i & ((1u << page_bits) - 1)]; }
    // Adds an entry to a segment that has room.
    void Add(uint64_t hash, RowRef row);
    template <typename Visit>
    void ForEachEntry(Visit visit) const;
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

  Place Search(uint64_t hash) const;
  absl::Status Grow(uint64_t hash);
  absl::Status Enlarge(Segment& segment);
  absl::Status Split(size_t entry);
  absl::Status DoubleDirectory();
  // The least size, in pages of 2^kPageBits lines, in which `rows` are at most max_load_ of the entries.
  Size SizeFor(int64_t rows) const;
  int64_t LimitOf(Size size);
  // Without entries.
  absl::StatusOr<Segment> MakeSegment(Size size, int depth);
  void FreeSegment(Segment& segment);
  absl::Status AddFreePages();
  // The directory's entries of the segment that has `entry`: the first, and their number.
  size_t FirstEntryOf(size_t entry, const Segment& segment) const {
    return entry & ~(EntriesOf(segment) - 1);
  }
  size_t EntriesOf(const Segment& segment) const { return size_t{1} << (directory_bits_ - segment.depth); }
  // The buckets of the hashes that the directory's entries [first, first + count) stand for.
  BucketRange BucketsOf(size_t first, size_t count) const;

  const BucketRange buckets_;
  const double max_load_;
  PagePool& pool_;
  const uint64_t first_hash_;
  const int range_bits_;   // the least number of bits that tell the buckets apart
  const int range_shift_;  // 16 - range_bits_

  int directory_bits_ = 0;
  int directory_shift_ = 63;         // 63 - directory_bits_
  std::vector<uint32_t> directory_;  // [the top directory_bits_ of a position] Indices into segments_.
  std::vector<Segment> segments_;
  std::vector<IndexLine*> free_pages_;      // 2^kPageBits lines each
  std::vector<AlignedBuffer> small_slabs_;  // the memory of the first pages
  int64_t slab_bytes_ = 0;                  // of all pages of 2^kPageBits lines
  IndexLine first_line_ = {};               // the memory of the first segment
  int64_t segments_made_ = 0;
  int64_t size_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace cairn::embedding
