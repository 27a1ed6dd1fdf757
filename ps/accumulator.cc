#include "ps/accumulator.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/received_elements.h"

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

  if (buffer_ == nullptr) buffer_ = pool_.TryAcquire();
  if (buffer_ == nullptr) return pool_.Refusal("values that arrive");
  CAIRN_RETURN_IF_ERROR(elements.Copy(0, {buffer_->data() + offset, static_cast<size_t>(count)}));
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

}  // namespace cairn::ps
