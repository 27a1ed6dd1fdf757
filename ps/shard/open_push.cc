#include "ps/shard/open_push.h"

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::ps {

absl::Status OpenPush::AddChunk(const v1::Chunk& chunk, net::Payload payload) {
  if (discard_) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(accumulator_.Add(chunk, payload));
  if (speculative_ != nullptr) {
    const auto [begin, end] = accumulator_.last();
    speculative_->Arrived(request_.gradient.key, accumulator_.elements(), begin, end);
  }
  return absl::OkStatus();
}

absl::Span<float> OpenPush::DestinationFor(const v1::Chunk& chunk, int64_t count) {
  return discard_ ? absl::Span<float>() : accumulator_.DestinationFor(chunk, count);
}

absl::Status OpenPush::CheckComplete() const {
  if (discard_ || accumulator_.complete()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Describe(request_.gradient.key), ": ",
                                                 accumulator_.received(), " of ", accumulator_.size(),
                                                 " elements received"));
}

}  // namespace cairn::ps
