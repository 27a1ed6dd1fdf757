// A sequence of floats that grows, in blocks that never move. Movable; one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "common/memory/aligned_buffer.h"

namespace cairn {

class FloatBlocks {
 public:
  FloatBlocks() = default;
  // One block.
  explicit FloatBlocks(AlignedBuffer floats) : size_(floats.size()), room_(floats.size()) {
    blocks_.push_back(std::move(floats));
  }

  int64_t size() const { return size_; }
  // Appends `count` zeros and returns their memory, in order. Throws OutOfMemory.
  absl::InlinedVector<absl::Span<float>, 2> Extend(int64_t count) {
    absl::InlinedVector<absl::Span<float>, 2> added;
    while (count > 0) {
      if (size_ == room_) {
        const int64_t block = std::clamp(std::max(count, size_), kFirstBlock, kBlock);
        blocks_.emplace_back(block);
        room_ += block;
      }
      const int64_t some = std::min(count, room_ - size_);
      AlignedBuffer& last = blocks_.back();
      added.push_back(
          last.span().subspan(static_cast<size_t>(last.size() - (room_ - size_)), static_cast<size_t>(some)));
      size_ += some;
      count -= some;
    }
    return added;
  }
  // The floats, in their order.
  std::vector<absl::Span<const float>> spans() const {
    std::vector<absl::Span<const float>> spans;
    for (const AlignedBuffer& block : blocks_) spans.push_back(block.span());
    if (!spans.empty()) spans.back().remove_suffix(static_cast<size_t>(room_ - size_));
    return spans;
  }

 private:
  static constexpr int64_t kFirstBlock = 1024;
  static constexpr int64_t kBlock = int64_t{1} << 22;  // 16 MiB

  std::vector<AlignedBuffer> blocks_;
  int64_t size_ = 0, room_ = 0;
};

}  // namespace cairn
