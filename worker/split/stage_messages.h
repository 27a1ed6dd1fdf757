// How tensors travel between a stage leader and its stage workers: cut into fragments, one per frame.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/all_reduce.pb.h"
#include "common/core/clock.h"
#include "common/core/tensor_view.h"
#include "nn/model.h"
#include "worker/peer/link.h"

namespace cairn::split {

v1::StageTensorName Named(v1::SplitKind kind, int index = 0);

// Copies values to memory that can be shared with the transport until they have been sent.
std::shared_ptr<const float[]> CopyOf(absl::Span<const float> values);

// An input of the model for a batch on its way to a stage worker: its bytes as floats. Those of a ragged input are its
// row splits, from 0 on, and then its `ragged_values` values.
int64_t RaggedValues(const TensorView& input);  // 0 unless it is ragged
int64_t RaggedValues(const v1::SplitBegin& begin, int input);
int64_t PackedFloats(const nn::ModelInput& input, int64_t examples, int64_t ragged_values);
std::shared_ptr<const float[]> PackInput(const TensorView& input, int64_t floats);
// INVALID_ARGUMENT for row splits that are not ascending. `packed` must outlive the view.
absl::StatusOr<TensorView> UnpackInput(const nn::ModelInput& input, int64_t examples, int64_t ragged_values,
                                       const float* packed);

// Sends all of `values` in fragments; `tensor` names the tensor. The values must not change while `owner`
// lives.
void SendTensor(allreduce::RingStream& stream, v1::StageTensorName tensor, absl::Span<const float> values,
                const std::shared_ptr<const void>& owner);

void SendHeader(allreduce::RingStream& stream, const v1::SplitHeader& header);
void SendBeat(allreduce::RingStream& stream);
// Between two beats to a peer that counts this task as lost after a silence of `lease`.
Duration BeatInterval(Duration lease);

}  // namespace cairn::split
