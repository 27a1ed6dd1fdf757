#include "common/net/wire/received_elements.h"

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/wire/codec.h"

namespace cairn::net {

absl::StatusOr<ReceivedElements> ReceivedElements::Of(const v1::Chunk& chunk, Payload payload) {
  ReceivedElements elements(chunk, payload);
  elements.codec_ = GradientCodecOf(chunk.encoding());
  if (elements.codec_ == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(elements.cut_.count, CountElements(chunk, payload));
    return elements;
  }
  const GradientCodec& codec = *elements.codec_;
  elements.cut_ = {.first = chunk.phase(), .count = chunk.count()};
  if (chunk.phase() < 0 || chunk.phase() >= codec.block_elements() || chunk.count() <= 0 ||
      chunk.count() > codec.chunk_elements()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a chunk of ", chunk.count(), " elements in ", EncodingName(chunk.encoding()),
                     " that begins at element ", chunk.phase(), " of a block: a chunk has 1 to ",
                     codec.chunk_elements(), " elements, and a block ", codec.block_elements(), " elements"));
  }
  elements.copy_.resize(static_cast<size_t>(PayloadBytes(payload)));
  CAIRN_RETURN_IF_ERROR(CopyPayload(payload, elements.copy_.data()));
  CAIRN_RETURN_IF_ERROR(codec.Check(elements.cut_, elements.copy_));
  return elements;
}

absl::Status ReceivedElements::Copy(int64_t first, absl::Span<float> to) const {
  if (codec_ == nullptr) return CopyElements(chunk_, payload_, first, to);
  codec_->Decode(cut_, copy_, first, to);
  return absl::OkStatus();
}

absl::Status ReceivedElements::Scatter(int64_t first, absl::Span<const absl::Span<float>> to) const {
  if (chunk_.encoding() == v1::ENCODING_FLOAT32 && payload_.borrowed() != nullptr) {
    absl::InlinedVector<absl::Span<char>, 8> places;
    for (const absl::Span<float>& place : to)
      places.push_back({reinterpret_cast<char*>(place.data()), place.size() * sizeof(float)});
    return payload_.borrowed()->Scatter(static_cast<size_t>(first) * sizeof(float), places);
  }
  for (const absl::Span<float>& place : to) {
    CAIRN_RETURN_IF_ERROR(Copy(first, place));
    first += static_cast<int64_t>(place.size());
  }
  return absl::OkStatus();
}

}  // namespace cairn::net
