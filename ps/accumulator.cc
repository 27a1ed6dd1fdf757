#include "ps/accumulator.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace cairn::ps {

absl::Status Accumulator::Add(int64_t offset, net::Payload payload) {
  const int64_t bytes = net::PayloadBytes(payload);
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  if (bytes == 0 || bytes % static_cast<int64_t>(sizeof(float)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk of ", bytes, " bytes is no run of floats"));
  }
  if (offset < 0 || offset > pool_.buffer_size() - count) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk of ", count, " elements at ", offset,
                                                   " lies outside the ", pool_.buffer_size(),
                                                   " values of this server"));
  }
  auto after = runs_.upper_bound(offset);
  auto before = after == runs_.begin() ? runs_.end() : std::prev(after);
  if ((after != runs_.end() && after->first < offset + count) ||
      (before != runs_.end() && before->second > offset)) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk [", offset, ", ", offset + count, ") repeats elements that have already come"));
  }

  if (buffer_ == nullptr) buffer_ = pool_.TryAcquire();
  if (buffer_ == nullptr) return pool_.Refusal("values that arrive");
  net::CopyPayload(payload, buffer_->data() + offset);
  received_ += count;

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
