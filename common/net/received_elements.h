// The elements of one chunk that came, in whichever encoding.
//
// Everything about them is checked before there is one. A payload may lie in memory that the other end shares
// and may change at any time: what places are read from is copied first. The chunk and the payload outlive
// it. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/net/frame.h"
#include "common/net/gradient/codec.h"

namespace cairn::net {

class ReceivedElements {
 public:
  // INVALID_ARGUMENT when the chunk and its payload do not agree, it has no elements, or an unknown encoding;
  // as LentBytes::Read().
  static absl::StatusOr<ReceivedElements> Of(const v1::Chunk& chunk, Payload payload);

  int64_t count() const { return cut_.count; }
  // Elements [first, first + to.size()) of them. Fails as LentBytes::Read().
  absl::Status Copy(int64_t first, absl::Span<float> to) const;
  // Elements from `first` on, to one place after another. Likewise.
  absl::Status Scatter(int64_t first, absl::Span<const absl::Span<float>> to) const;

 private:
  ReceivedElements(const v1::Chunk& chunk, Payload payload) : chunk_(chunk), payload_(payload) {}

  const v1::Chunk& chunk_;
  const Payload payload_;
  const GradientCodec* codec_ = nullptr;  // null: not an encoding of gradients alone
  Cut cut_;
  std::vector<char> copy_;  // of the payload, where there is a codec
};

}  // namespace cairn::net
