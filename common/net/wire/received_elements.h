// The elements of one received chunk, in any encoding.
//
// All properties are checked on construction. The payload may be in memory that the other end shares and may
// change at any time, so indices are copied before they are used. The chunk and the payload must outlive this
// object. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/net/gradient/codec.h"
#include "common/net/wire/frame.h"

namespace cairn::net {

class ReceivedElements {
 public:
  // INVALID_ARGUMENT if the chunk and its payload do not agree, if it has no elements, or if the encoding is
  // unknown; also the errors of BorrowedBytes::Read().
  static absl::StatusOr<ReceivedElements> Of(const v1::Chunk& chunk, Payload payload);

  int64_t count() const { return cut_.count; }
  // Decodes the elements [first, first + to.size()). Fails as BorrowedBytes::Read() does.
  absl::Status Copy(int64_t first, absl::Span<float> to) const;
  // Decodes the elements from `first` on into the destinations in turn. Fails as Copy() does.
  absl::Status Scatter(int64_t first, absl::Span<const absl::Span<float>> to) const;

 private:
  ReceivedElements(const v1::Chunk& chunk, Payload payload) : chunk_(chunk), payload_(payload) {}

  const v1::Chunk& chunk_;
  const Payload payload_;
  const GradientCodec* codec_ = nullptr;  // null: the encoding is not only for gradients
  Cut cut_;
  std::vector<char> copy_;  // a copy of the payload, if there is a codec
};

}  // namespace cairn::net
