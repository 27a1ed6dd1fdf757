#include "embedding/store/row_arena.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/core/status.h"

namespace cairn::embedding {
namespace {

constexpr int64_t kFirstBlockBytes = 4 << 10;

int64_t BytesOfRow(int64_t floats) {
  CAIRN_CHECK(floats >= 1 && floats <= RowArena::kMaxFloats);
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace

RowArena::RowArena(int64_t floats, PagePool& pool)
    : row_bytes_(BytesOfRow(floats)),
      prefetch_bytes_(std::min(row_bytes_, kMaxPrefetch)),
      place_bits_(std::bit_width(static_cast<uint64_t>(PagePool::kChunkBytes / row_bytes_ - 1))),
      place_mask_((RowRef{1} << place_bits_) - 1),
      pool_(pool) {}

absl::Status RowArena::AddBlock() {
  if ((blocks_.size() + 1) >> (32 - place_bits_) != 0) {  // the last block would have kNoRow
    return absl::ResourceExhaustedError("it has as many rows as one store can hold");
  }
  int64_t bytes = std::max({kFirstBlockBytes, bytes_, row_bytes_});
  char* block = nullptr;
  if (bytes < PagePool::kChunkBytes) {
    CAIRN_ASSIGN_OR_RETURN(AlignedBuffer buffer, pool_.TakeBuffer(bytes));
    small_blocks_.push_back(std::move(buffer));
    block = reinterpret_cast<char*>(small_blocks_.back().data());
  } else {
    bytes = PagePool::kChunkBytes;
    CAIRN_ASSIGN_OR_RETURN(block, pool_.TakeChunk());
  }
  next_ = static_cast<uint64_t>(blocks_.size()) << place_bits_;
  end_ = next_ + static_cast<uint64_t>(bytes / row_bytes_);
  blocks_.push_back(block);
  bytes_ += bytes;
  return absl::OkStatus();
}

RowRef RowArena::Add() {
  if (free_count_ == 0) {
    CAIRN_CHECK(next_ < end_);
    return static_cast<RowRef>(next_++);
  }
  const RowRef row = first_free_;
  std::memcpy(&first_free_, FloatsOf(row), sizeof(first_free_));
  --free_count_;
  std::memset(FloatsOf(row), 0, static_cast<size_t>(row_bytes_));
  return row;
}

void RowArena::Free(RowRef row) {
  std::memcpy(FloatsOf(row), &first_free_, sizeof(first_free_));
  first_free_ = row;
  ++free_count_;
}

}  // namespace cairn::embedding
