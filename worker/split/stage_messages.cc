#include "worker/split/stage_messages.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "common/net/data_channel/stream/stream.h"

namespace cairn::split {

v1::StageTensorName Named(v1::SplitKind kind, int index) {
  v1::StageTensorName tensor;
  tensor.set_kind(kind);
  tensor.set_index(index);
  return tensor;
}

std::shared_ptr<const float[]> CopyOf(absl::Span<const float> values) {
  std::shared_ptr<float[]> copy(new float[values.size()]);
  std::copy(values.begin(), values.end(), copy.get());
  return copy;
}

void SendTensor(allreduce::RingStream& stream, v1::StageTensorName tensor, absl::Span<const float> values,
                const std::shared_ptr<const void>& owner) {
  constexpr auto kMax = static_cast<size_t>(net::DataStream::kFragmentFloats);
  const bool completes = tensor.completes();
  v1::RingHeader header;
  v1::StageTensorName& sent = *header.mutable_split()->mutable_tensor();
  sent = std::move(tensor);
  for (size_t offset = 0; offset < values.size(); offset += kMax) {
    const absl::Span<const float> fragment = values.subspan(offset, kMax);
    sent.set_offset(static_cast<int64_t>(offset));
    sent.set_completes(completes && offset + fragment.size() == values.size());
    stream.Send(header, {&fragment, 1}, owner);
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

Duration BeatInterval(Duration lease) {
  return std::min<Duration>(std::chrono::seconds(1), lease / 4);
}

}  // namespace cairn::split
