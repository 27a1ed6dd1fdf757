#include "worker/split/pieces.h"

#include <algorithm>
#include <cstdint>

#include "common/net/data_channel/stream.h"

namespace cairn::split {

std::shared_ptr<const float[]> CopyOf(absl::Span<const float> values) {
  std::shared_ptr<float[]> copy(new float[values.size()]);
  std::copy(values.begin(), values.end(), copy.get());
  return copy;
}

void SendPieces(allreduce::RingStream& stream, v1::SplitPiece piece, absl::Span<const float> values,
                const std::shared_ptr<const void>& owner) {
  constexpr auto kMax = static_cast<size_t>(net::DataStream::kPieceFloats);
  const bool completes = piece.completes();
  v1::RingHeader header;
  v1::SplitPiece& sent = *header.mutable_split()->mutable_piece();
  sent = std::move(piece);
  for (size_t offset = 0; offset < values.size(); offset += kMax) {
    const absl::Span<const float> stage = values.subspan(offset, kMax);
    sent.set_offset(static_cast<int64_t>(offset));
    sent.set_completes(completes && offset + stage.size() == values.size());
    stream.Send(header, {&stage, 1}, owner);
  }
}

void SendHeader(allreduce::RingStream& stream, const v1::SplitHeader& split) {
  v1::RingHeader header;
  *header.mutable_split() = split;
  stream.Send(header, {}, nullptr);
}

void SendBeat(allreduce::RingStream& stream) {
  v1::RingHeader header;
  header.mutable_beat();
  stream.Send(header, {}, nullptr);
}

}  // namespace cairn::split
