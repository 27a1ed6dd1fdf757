#include "worker/split/stage_messages.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/net/data_channel/stream/stream.h"
#include "nn/batch.h"

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

int64_t RaggedValues(const TensorView& input) {
  return input.ragged() ? input.row_splits.back() - input.row_splits.front() : 0;
}

int64_t RaggedValues(const v1::SplitBegin& begin, int input) {
  return input < begin.ragged_values_size() ? begin.ragged_values(input) : 0;
}

int64_t PackedFloats(const nn::ModelInput& input, int64_t examples, int64_t ragged_values) {
  constexpr int64_t kFloatsOfInteger = sizeof(int64_t) / sizeof(float);
  return input.ragged ? (examples + 1 + ragged_values) * kFloatsOfInteger : nn::InputFloats(input, examples);
}

std::shared_ptr<const float[]> PackInput(const TensorView& input, int64_t floats) {
  std::shared_ptr<float[]> packed(new float[static_cast<size_t>(floats)]);
  if (!input.ragged()) {
    if (floats > 0) packed[static_cast<size_t>(floats) - 1] = 0;  // the bytes may not fill it
    std::memcpy(packed.get(), input.data, static_cast<size_t>(input.bytes()));
    return packed;
  }
  auto* to = reinterpret_cast<int64_t*>(packed.get());
  const int64_t begin = input.row_splits.front();
  for (const int64_t split : input.row_splits) *to++ = split - begin;
  std::copy_n(static_cast<const int64_t*>(input.data) + begin, input.row_splits.back() - begin, to);
  return packed;
}

absl::StatusOr<TensorView> UnpackInput(const nn::ModelInput& input, int64_t examples, int64_t ragged_values,
                                       const float* packed) {
  if (!input.ragged) return TensorView{input.dtype, {examples, input.shape.num_elements()}, packed};
  const auto* const integers = reinterpret_cast<const int64_t*>(packed);
  const absl::Span<const int64_t> splits(integers, static_cast<size_t>(examples) + 1);
  if (splits.front() != 0 || splits.back() != ragged_values ||
      !std::is_sorted(splits.begin(), splits.end())) {
    return absl::InvalidArgumentError(absl::StrCat("split: invalid row splits of input '", input.name,
                                                   "' with ", ragged_values, " values"));
  }
  return TensorView{input.dtype, {ragged_values}, integers + splits.size(), splits};
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
