// How tensors travel between a stage leader and its stage workers: cut into fragments, one per frame.
#pragma once

#include <functional>
#include <memory>

#include "absl/types/span.h"
#include "cairn/v1/all_reduce.pb.h"
#include "common/core/clock.h"
#include "worker/peer/link.h"

namespace cairn::split {

v1::StageTensorName Named(v1::SplitKind kind, int index = 0);

// Copies values to memory that can be shared with the transport until they have been sent.
std::shared_ptr<const float[]> CopyOf(absl::Span<const float> values);

// Sends all of `values` in fragments; `tensor` names the tensor. The values must not change while `owner`
// lives.
void SendTensor(allreduce::RingStream& stream, v1::StageTensorName tensor, absl::Span<const float> values,
                const std::shared_ptr<const void>& owner);

void SendHeader(allreduce::RingStream& stream, const v1::SplitHeader& header);
void SendBeat(allreduce::RingStream& stream);
// Between two beats to a peer that counts this task as lost after a silence of `lease`.
Duration BeatInterval(Duration lease);

}  // namespace cairn::split
