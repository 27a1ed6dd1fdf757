// How tensors travel between a head and its partners: cut into frames.
#pragma once

#include <functional>
#include <memory>

#include "absl/types/span.h"
#include "cairn/v1/all_reduce.pb.h"
#include "worker/allreduce/link.h"

namespace cairn::split {

// What is sent is shared with the transport until it has gone.
std::shared_ptr<const float[]> CopyOf(absl::Span<const float> values);

// Sends all of `values`, as `piece` says what they are. They stay as they are while `owner` lives.
void SendPieces(allreduce::RingStream& stream, v1::SplitPiece piece, absl::Span<const float> values,
                const std::shared_ptr<const void>& owner);

void SendHeader(allreduce::RingStream& stream, const v1::SplitHeader& header);
void SendBeat(allreduce::RingStream& stream);

}  // namespace cairn::split
