#include "embedding/store/row_index.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "common/core/status.h"

namespace cairn::embedding {
namespace {

// As many segments have buffers of their own, so that the lines of a small store do not take a chunk.
constexpr size_t kSegmentsOfBuffers = 16;
constexpr int64_t kSplitBytes = int64_t{RowIndex::kMaxSplitLines} * sizeof(IndexLine);

// The number of rows with which a segment grows: 0.70 to 0.86 of its entries, depending on `seed`.
int64_t LimitOf(uint32_t num_lines, int64_t seed) {
  const double part = static_cast<double>(HashKey(seed) >> 32) * 0x1p-32;
  return static_cast<int64_t>((0.70 + 0.16 * part) * num_lines * IndexLine::kEntries);
}

}  // namespace

RowIndex::RowIndex(BucketRange buckets, const RowArena& rows, PagePool& pool)
    : buckets_(buckets),
      rows_(rows),
      pool_(pool),
      first_hash_(static_cast<uint64_t>(buckets.begin) << 48),
      range_bits_(std::bit_width(static_cast<unsigned>(buckets.size() - 1))),
      range_shift_(16 - range_bits_) {
  CAIRN_CHECK(buckets.size() > 0);
  Segment first;
  first.lines = &first_line_;
  first.limit = LimitOf(1, 0);
  segments_.push_back(std::move(first));
  directory_.push_back({&first_line_, 0, 0});
}

RowIndex::Place RowIndex::Search(uint64_t hash, int64_t key) const {
  const DirectoryEntry& entry = EntryOf(hash);
  const uint8_t tag = TagOf(hash);
  const uint32_t home = static_cast<uint32_t>(hash) & entry.mask;
  for (uint32_t i = home;;) {
    IndexLine& line = entry.lines[i];
    for (uint32_t match = line.Matching(tag); match != 0; match &= match - 1) {
      const int at = std::countr_zero(match);
      if (rows_.KeyOf(line.rows[at]) == key) return {line.rows[at], &line, at};
    }
    i = (i + 1) & entry.mask;
    if (line.overflowed == 0 || i == home) return {kNone, nullptr, 0};
  }
}

void RowIndex::Add(Segment& segment, uint64_t hash, RowRef row) {
  uint32_t i = static_cast<uint32_t>(hash) & segment.mask;
  while (segment.lines[i].full()) {
    segment.lines[i].CountPassed();
    i = (i + 1) & segment.mask;
  }
  segment.lines[i].Add(TagOf(hash), row);
  ++segment.rows;
}

void RowIndex::Insert(uint64_t hash, RowRef row) {
  Add(segments_[EntryOf(hash).segment], hash, row);
  ++size_;
}

RowRef RowIndex::Erase(uint64_t hash, int64_t key) {
  const Place place = Search(hash, key);
  if (place.row == kNone) return kNone;
  Segment& segment = segments_[EntryOf(hash).segment];
  for (uint32_t i = static_cast<uint32_t>(hash) & segment.mask; &segment.lines[i] != place.line;
       i = (i + 1) & segment.mask) {
    segment.lines[i].UncountPassed();
  }
  place.line->Remove(place.entry);
  --segment.rows;
  --size_;
  return place.row;
}

absl::StatusOr<IndexLine*> RowIndex::TakeSplitLines() {
  if (free_lines_.empty()) {
    CAIRN_ASSIGN_OR_RETURN(char* const chunk, pool_.TakeChunk());
    bytes_ += PagePool::kChunkBytes;
    for (int64_t at = PagePool::kChunkBytes; at > 0; at -= kSplitBytes)
      free_lines_.push_back(reinterpret_cast<IndexLine*>(chunk + at - kSplitBytes));
  }
  IndexLine* const lines = free_lines_.back();
  free_lines_.pop_back();
  std::memset(static_cast<void*>(lines), 0, kSplitBytes);
  return lines;
}

absl::StatusOr<RowIndex::Segment> RowIndex::MakeSegment(uint32_t num_lines, int depth) {
  Segment segment;
  if (num_lines == kMaxSplitLines && segments_.size() >= kSegmentsOfBuffers) {
    CAIRN_ASSIGN_OR_RETURN(segment.lines, TakeSplitLines());
  } else {
    const int64_t bytes = int64_t{num_lines} * static_cast<int64_t>(sizeof(IndexLine));
    CAIRN_ASSIGN_OR_RETURN(segment.own, pool_.TakeBuffer(bytes));
    bytes_ += bytes;
    segment.lines = reinterpret_cast<IndexLine*>(segment.own.data());
  }
  segment.mask = num_lines - 1;
  segment.depth = depth;
  segment.limit = LimitOf(num_lines, ++segments_made_);
  return segment;
}

void RowIndex::FreeSegment(Segment& segment) {
  if (segment.own.size() > 0) {
    bytes_ -= segment.own.size() * static_cast<int64_t>(sizeof(float));
    pool_.FreeBuffer(std::move(segment.own));
  } else if (segment.lines != &first_line_) {
    free_lines_.push_back(segment.lines);
  }
}

template <typename AddRow>
void RowIndex::ForEachRow(const Segment& segment, AddRow add) const {
  // Keys lie in the rows, so the rows of the next lines are fetched first.
  constexpr uint32_t kAhead = 3;
  const uint32_t num_lines = segment.mask + 1;
  for (uint32_t i = 0; i < num_lines + kAhead; ++i) {
    if (i < num_lines) {
      const IndexLine& line = segment.lines[i];
      for (uint32_t used = line.used; used != 0; used &= used - 1)
        rows_.PrefetchKey(line.rows[std::countr_zero(used)]);
    }
    if (i < kAhead) continue;
    const IndexLine& line = segment.lines[i - kAhead];
    for (uint32_t used = line.used; used != 0; used &= used - 1) {
      const RowRef row = line.rows[std::countr_zero(used)];
      add(HashKey(rows_.KeyOf(row)), row);
    }
  }
}

size_t RowIndex::FirstEntryOf(size_t entry, const Segment& segment) const {
  return entry & ~(EntriesOf(segment) - 1);
}

void RowIndex::PointTo(size_t first_entry, uint32_t number) {
  const Segment& segment = segments_[number];
  const DirectoryEntry entry = {segment.lines, segment.mask, number};
  std::fill_n(directory_.begin() + static_cast<int64_t>(first_entry), EntriesOf(segment), entry);
}

absl::Status RowIndex::Grow(uint64_t hash) {
  for (;;) {
    const size_t entry = EntryNumberOf(hash);
    const Segment& segment = segments_[directory_[entry].segment];
    if (segment.rows < segment.limit) return absl::OkStatus();
    const bool split = segment.mask + 1 >= kMaxSplitLines && segment.depth < range_bits_;
    CAIRN_RETURN_IF_ERROR(split ? Split(entry) : DoubleLines(entry));
  }
}

absl::Status RowIndex::DoubleLines(size_t entry) {
  const uint32_t number = directory_[entry].segment;
  Segment& old = segments_[number];
  CAIRN_ASSIGN_OR_RETURN(Segment larger, MakeSegment(2 * (old.mask + 1), old.depth));
  ForEachRow(old, [&](uint64_t hash, RowRef row) { Add(larger, hash, row); });
  FreeSegment(old);
  old = std::move(larger);
  PointTo(FirstEntryOf(entry, old), number);
  return absl::OkStatus();
}

absl::Status RowIndex::Split(size_t entry) {
  const uint32_t number = directory_[entry].segment;
  const int depth = segments_[number].depth;
  if (depth == directory_bits_) {
    CAIRN_RETURN_IF_ERROR(DoubleDirectory());
    entry *= 2;
  }
  CAIRN_ASSIGN_OR_RETURN(Segment low, MakeSegment(kMaxSplitLines, depth + 1));
  auto high = MakeSegment(kMaxSplitLines, depth + 1);
  if (!high.ok()) {
    FreeSegment(low);
    return high.status();
  }
  const int bit = 63 - depth;  // of the position, which tells the halves apart
  ForEachRow(segments_[number], [&](uint64_t hash, RowRef row) {
    Add((PositionOf(hash) >> bit & 1) != 0 ? *high : low, hash, row);
  });
  FreeSegment(segments_[number]);
  const size_t first = FirstEntryOf(entry, segments_[number]);
  segments_[number] = std::move(low);
  segments_.push_back(*std::move(high));
  PointTo(first, number);
  PointTo(first + EntriesOf(segments_[number]), static_cast<uint32_t>(segments_.size() - 1));
  return absl::OkStatus();
}

absl::Status RowIndex::DoubleDirectory() {
  const auto bytes = static_cast<int64_t>(directory_.size() * sizeof(DirectoryEntry));
  CAIRN_RETURN_IF_ERROR(pool_.Charge(bytes));
  bytes_ += bytes;
  std::vector<DirectoryEntry> doubled(2 * directory_.size());
  for (size_t i = 0; i < doubled.size(); ++i) doubled[i] = directory_[i / 2];
  directory_ = std::move(doubled);
  ++directory_bits_;
  --directory_shift_;
  return absl::OkStatus();
}

BucketRange RowIndex::BucketsOf(size_t first, size_t count) const {
  const int shift = range_bits_ - directory_bits_;
  const auto after = [&](size_t entry) {
    return std::min(buckets_.end, buckets_.begin + static_cast<int>(entry << shift));
  };
  return {after(first), after(first + count)};
}

void RowIndex::VisitSegments(BucketRange range, VisitSegment visit) const {
  CAIRN_CHECK(range.begin >= buckets_.begin && range.end <= buckets_.end);
  const int shift = range_bits_ - directory_bits_;
  std::vector<RowRef> rows;
  for (auto bucket = range.begin; bucket < range.end;) {
    const auto entry = static_cast<size_t>((bucket - buckets_.begin) >> shift);
    const Segment& segment = segments_[directory_[entry].segment];
    const BucketRange covered = BucketsOf(FirstEntryOf(entry, segment), EntriesOf(segment));
    rows.clear();
    for (const IndexLine& line : absl::MakeConstSpan(segment.lines, segment.mask + size_t{1})) {
      for (uint32_t used = line.used; used != 0; used &= used - 1)
        rows.push_back(line.rows[std::countr_zero(used)]);
    }
    visit(covered, rows);
    bucket = covered.end;
  }
}

}  // namespace cairn::embedding
