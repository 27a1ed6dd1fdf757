#include "embedding/store/row_index.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "common/core/status.h"
#include "embedding/keys/key_hash.h"

namespace cairn::embedding {
namespace {

constexpr int64_t kPageBytes = int64_t{sizeof(IndexLine)} << RowIndex::kPageBits;
// Limits of segments are spread over this part of max_load.
constexpr double kSpread = 0.12;

}  // namespace

RowIndex::RowIndex(BucketRange buckets, double max_load, PagePool& pool)
    : buckets_(buckets),
      max_load_(max_load),
      pool_(pool),
      first_hash_(static_cast<uint64_t>(buckets.begin) << 48),
      range_bits_(std::bit_width(static_cast<unsigned>(buckets.size() - 1))),
      range_shift_(16 - range_bits_) {
  CAIRN_CHECK(buckets.size() > 0 && max_load >= 0.5 && max_load <= 0.9);
  Segment first;
  first.pages[0] = &first_line_;
  first.limit = LimitOf(first.size);
  segments_.push_back(std::move(first));
  directory_.push_back(0);
}

void RowIndex::Segment::Add(uint64_t hash, RowRef row) {
  uint32_t i = HomeOf(hash);
  while (line(i).full()) {
    line(i).CountPassed();
    i = After(i);
  }
  line(i).Add(hash, row);
  ++rows;
}

template <typename Visit>
void RowIndex::Segment::ForEachEntry(Visit visit) const {
  for (uint32_t i = 0; i < num_lines; ++i) {
    const IndexLine& from = line(i);
    for (uint32_t used = from.used; used != 0; used &= used - 1) {
      const int entry = std::countr_zero(used);
      visit(from.hashes[entry], from.rows[entry]);
    }
  }
}

RowIndex::Place RowIndex::Search(uint64_t hash) const {
  const Segment& segment = segments_[directory_[EntryNumberOf(hash)]];
  const uint32_t home = segment.HomeOf(hash);
  for (uint32_t i = home;;) {
    IndexLine& line = segment.line(i);
    if (const uint32_t matching = line.Matching(hash); matching != 0) {
      const int entry = std::countr_zero(matching);
      return {line.rows[entry], &line, entry};
    }
    i = segment.After(i);
    if (line.overflowed == 0 || i == home) return {kNoRow, nullptr, 0};
  }
}

void RowIndex::Insert(uint64_t hash, RowRef row) {
  segments_[directory_[EntryNumberOf(hash)]].Add(hash, row);
  ++size_;
}

RowRef RowIndex::Erase(uint64_t hash) {
  const Place place = Search(hash);
  if (place.row == kNoRow) return kNoRow;
  Segment& segment = segments_[directory_[EntryNumberOf(hash)]];
  for (uint32_t i = segment.HomeOf(hash); &segment.line(i) != place.line; i = segment.After(i))
    segment.line(i).UncountPassed();
  place.line->Remove(place.entry);
  --segment.rows;
  --size_;
  return place.row;
}

RowIndex::Size RowIndex::SizeFor(int64_t rows) const {
  const double rows_of_page = max_load_ * IndexLine::kEntries * (1 << kPageBits);
  return {.pages = std::clamp(static_cast<int>(static_cast<double>(rows) / rows_of_page) + 1, 1, kMaxPages),
          .page_bits = kPageBits};
}

int64_t RowIndex::LimitOf(Size size) {
  const double random = static_cast<double>(HashKey(segments_made_++) >> 32) * 0x1p-32;
  return static_cast<int64_t>((1 - kSpread * random) * max_load_ * static_cast<double>(size.entries()));
}

absl::Status RowIndex::AddFreePages() {
  // As of rows: each slab has the size of all before it, up to a chunk.
  const int64_t bytes = std::clamp(slab_bytes_, kPageBytes, PagePool::kChunkBytes);
  char* slab = nullptr;
  if (bytes < PagePool::kChunkBytes) {
    CAIRN_ASSIGN_OR_RETURN(AlignedBuffer buffer, pool_.TakeBuffer(bytes));
    small_slabs_.push_back(std::move(buffer));
    slab = reinterpret_cast<char*>(small_slabs_.back().data());
  } else {
    CAIRN_ASSIGN_OR_RETURN(slab, pool_.TakeChunk());
  }
  slab_bytes_ += bytes;
  bytes_ += bytes;
  for (int64_t at = bytes - kPageBytes; at >= 0; at -= kPageBytes)
    free_pages_.push_back(reinterpret_cast<IndexLine*>(slab + at));
  return absl::OkStatus();
}

absl::StatusOr<RowIndex::Segment> RowIndex::MakeSegment(Size size, int depth) {
  Segment segment;
  if (size.page_bits == kPageBits) {
    while (free_pages_.size() < static_cast<size_t>(size.pages)) CAIRN_RETURN_IF_ERROR(AddFreePages());
    for (int i = 0; i < size.pages; ++i) {
      segment.pages[i] = free_pages_.back();
      free_pages_.pop_back();
      std::memset(static_cast<void*>(segment.pages[i]), 0, kPageBytes);
    }
  } else {
    const int64_t bytes = int64_t{size.lines()} * static_cast<int64_t>(sizeof(IndexLine));
    CAIRN_ASSIGN_OR_RETURN(segment.own, pool_.TakeBuffer(bytes));
    bytes_ += bytes;
    auto* const lines = reinterpret_cast<IndexLine*>(segment.own.data());
    for (int i = 0; i < size.pages; ++i) segment.pages[i] = lines + (int64_t{i} << size.page_bits);
  }
  segment.num_lines = size.lines();
  segment.page_bits = static_cast<uint32_t>(size.page_bits);
  segment.limit = LimitOf(size);
  segment.size = size;
  segment.depth = depth;
  return segment;
}

void RowIndex::FreeSegment(Segment& segment) {
  if (segment.size.page_bits == kPageBits) {
    free_pages_.insert(free_pages_.end(), segment.pages.begin(), segment.pages.begin() + segment.size.pages);
  } else if (segment.own.size() > 0) {
    bytes_ -= segment.own.size() * static_cast<int64_t>(sizeof(float));
    pool_.FreeBuffer(std::move(segment.own));
  }
}

absl::Status RowIndex::Grow(uint64_t hash) {
  for (;;) {
    const size_t entry = EntryNumberOf(hash);
    Segment& segment = segments_[directory_[entry]];
    if (segment.rows < segment.limit) return absl::OkStatus();
    const bool split = segment.size.pages == kMaxPages && segment.depth < range_bits_;
    CAIRN_RETURN_IF_ERROR(split ? Split(entry) : Enlarge(segment));
  }
}

absl::Status RowIndex::Enlarge(Segment& segment) {
  Size size = segment.size;
  if (size.page_bits < kPageBits) {
    ++size.page_bits;
  } else if (size.pages < kMaxPages) {
    ++size.pages;
  } else {
    size = {.pages = kMaxPages / 2 + 1, .page_bits = size.page_bits + 1};
  }
  CAIRN_ASSIGN_OR_RETURN(Segment larger, MakeSegment(size, segment.depth));
  segment.ForEachEntry([&](uint64_t hash, RowRef row) { larger.Add(hash, row); });
  FreeSegment(segment);
  segment = std::move(larger);
  return absl::OkStatus();
}

absl::Status RowIndex::Split(size_t entry) {
  const uint32_t number = directory_[entry];
  const int depth = segments_[number].depth;
  if (depth == directory_bits_) {
    CAIRN_RETURN_IF_ERROR(DoubleDirectory());
    entry *= 2;
  }
  const int bit = 63 - depth;  // of the position, which tells the halves apart
  const auto is_high = [&](uint64_t hash) { return (PositionOf(hash) >> bit & 1) != 0; };
  int64_t high_rows = 0;
  segments_[number].ForEachEntry([&](uint64_t hash, RowRef) { high_rows += is_high(hash) ? 1 : 0; });
  CAIRN_ASSIGN_OR_RETURN(Segment low, MakeSegment(SizeFor(segments_[number].rows - high_rows), depth + 1));
  auto high = MakeSegment(SizeFor(high_rows), depth + 1);
  if (!high.ok()) {
    FreeSegment(low);
    return high.status();
  }
  segments_[number].ForEachEntry(
      [&](uint64_t hash, RowRef row) { (is_high(hash) ? *high : low).Add(hash, row); });
  FreeSegment(segments_[number]);
  const size_t first = FirstEntryOf(entry, segments_[number]);
  segments_[number] = std::move(low);
  segments_.push_back(*std::move(high));
  const size_t count = EntriesOf(segments_.back());
  std::fill_n(directory_.begin() + static_cast<int64_t>(first + count), count,
              static_cast<uint32_t>(segments_.size() - 1));
  return absl::OkStatus();
}

absl::Status RowIndex::DoubleDirectory() {
  const auto bytes = static_cast<int64_t>(directory_.size() * sizeof(uint32_t));
  CAIRN_RETURN_IF_ERROR(pool_.Charge(bytes));
  bytes_ += bytes;
  std::vector<uint32_t> doubled(2 * directory_.size());
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
  std::vector<Entry> entries;
  for (auto bucket = range.begin; bucket < range.end;) {
    const auto entry = static_cast<size_t>((bucket - buckets_.begin) >> shift);
    const Segment& segment = segments_[directory_[entry]];
    const BucketRange covered = BucketsOf(FirstEntryOf(entry, segment), EntriesOf(segment));
    entries.clear();
    segment.ForEachEntry([&](uint64_t hash, RowRef row) { entries.push_back({hash, row}); });
    visit(covered, entries);
    bucket = covered.end;
  }
}

}  // namespace cairn::embedding
