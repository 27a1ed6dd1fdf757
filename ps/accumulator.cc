#include "ps/accumulator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::ps {

absl::StatusOr<Accumulator::Neighbours> Accumulator::FindRoom(int64_t offset, int64_t count) {
  if (offset < 0 || offset > pool_.buffer_size() - count) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk of ", count, " elements at ", offset,
                                                   " lies outside the ", pool_.buffer_size(),
                                                   " values of this server"));
  }
  const auto after = runs_.upper_bound(offset);
  const auto before = after == runs_.begin() ? runs_.end() : std::prev(after);
  if ((after != runs_.end() && after->first < offset + count) ||
      (before != runs_.end() && before->second > offset)) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk [", offset, ", ", offset + count, ") repeats elements that have already come"));
  }
  return Neighbours{before, after};
}

absl::Span<float> Accumulator::PlaceFor(const v1::Chunk& chunk, int64_t count) {
  if (chunk.encoding() != v1::ENCODING_FLOAT32 || !FindRoom(chunk.offset(), count).ok()) return {};
  if (buffer_ == nullptr) buffer_ = pool_.TryAcquire();
  if (buffer_ == nullptr) return {};
  return {buffer_->data() + chunk.offset(), static_cast<size_t>(count)};
}

absl::Status Accumulator::Add(const v1::Chunk& chunk, net::Payload payload) {
  const int64_t offset = chunk.offset();
  CAIRN_ASSIGN_OR_RETURN(const auto elements, net::ReceivedElements::Of(chunk, payload));
  const int64_t count = elements.count();
  CAIRN_ASSIGN_OR_RETURN(const auto room, FindRoom(offset, count));
  const auto [before, after] = room;

  if (!Keep(chunk, payload)) CAIRN_RETURN_IF_ERROR(Copy(elements, offset));
  received_ += count;
  last_ = {offset, offset + count};

  int64_t begin = offset, end = offset + count;
  if (before != runs_.end() && before->second == begin) {
    begin = before->first;
    runs_.erase(before);
  }
  if (after != runs_.end() && after->first == end) {
    end = after->second;
    runs_.erase(after);
  }
  runs_[begin] = end;
  return absl::OkStatus();
}

bool Accumulator::Keep(const v1::Chunk& chunk, net::Payload payload) {
  if (!keeps_lent_ || buffer_ != nullptr || payload.lent() == nullptr) return false;
  if (chunk.encoding() != v1::ENCODING_FLOAT32) return false;
  const auto kept = payload.lent()->Keep();
  if (!kept.has_value()) return false;
  // All of the client's elements must be in what is mapped, as they are here.
  const auto before = static_cast<size_t>(chunk.offset()) * sizeof(float);
  const auto size = static_cast<size_t>(pool_.buffer_size()) * sizeof(float);
  const auto begin = static_cast<size_t>(kept->bytes.data() - kept->around.data());
  if (begin < before || size > kept->around.size() - (begin - before)) return false;
  const char* const first = kept->bytes.data() - before;
  if (reinterpret_cast<uintptr_t>(first) % alignof(float) != 0) return false;
  HeldElements elements = HeldElements::AtClient(
      std::shared_ptr<const float>(kept->owner, reinterpret_cast<const float*>(first)));
  if (kept_.none()) kept_ = std::move(elements);
  return kept_.data() == reinterpret_cast<const float*>(first);
}

absl::Status Accumulator::Copy(const net::ReceivedElements& elements, int64_t offset) {
  if (buffer_ == nullptr) buffer_ = pool_.TryAcquire();
  if (buffer_ == nullptr) return pool_.Refusal("values that arrive");
  CAIRN_RETURN_IF_ERROR(elements.Copy(0, {buffer_->data() + offset, static_cast<size_t>(elements.count())}));
  if (kept_.none()) return absl::OkStatus();
  for (const auto& [begin, end] : runs_) {
    std::copy(kept_.data() + begin, kept_.data() + end, buffer_->data() + begin);
  }
  kept_ = HeldElements();
  return absl::OkStatus();
}

HeldElements Accumulator::Take() {
  if (!kept_.none()) return std::exchange(kept_, HeldElements());
  return HeldElements(std::move(buffer_));
}

}  // namespace cairn::ps
