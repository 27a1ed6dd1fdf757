// Frames: a protobuf header and a raw payload in one gRPC message, without copying the payload.
//
// On the wire a frame is `message { Header header = 1; bytes payload = 2; }` (session.proto). Encoding takes
// the payload by reference, decoding hands out the slices in which it arrived: about twenty for 1 MiB, and
// one may end in the middle of a float.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

namespace cairn::net {

inline constexpr int64_t kMaxPayloadBytes = int64_t{1} << 20;
inline constexpr int64_t kMaxPayloadFloats = kMaxPayloadBytes / static_cast<int64_t>(sizeof(float));
// Headers are small; a longer one is not ours.
inline constexpr int64_t kMaxHeaderBytes = int64_t{64} << 10;

// A message may be one frame at most.
inline constexpr int kMaxMessageBytes = static_cast<int>(kMaxPayloadBytes + kMaxHeaderBytes + 64);

using FloatSpans = absl::Span<const absl::Span<const float>>;

// A received payload: borrowed byte runs that together are its bytes.
using Payload = absl::Span<const absl::Span<const char>>;

int64_t PayloadBytes(Payload payload);
// Copies the payload to `to`, which has room for PayloadBytes().
void CopyPayload(Payload payload, void* to);

// The payload's memory must stay unchanged until gRPC has let go of the message: either `owner` keeps it
// alive, or (owner null) the caller waits for the end of its stream.
grpc::ByteBuffer EncodeFrame(const google::protobuf::MessageLite& header, FloatSpans payload,
                             const std::shared_ptr<const void>& owner);

// A decoded frame keeps the message's memory.
class DecodedFrame {
 public:
  // INVALID_ARGUMENT for anything that is not exactly a header and at most kMaxPayloadBytes of payload.
  // `header` is then unspecified.
  absl::Status Decode(const grpc::ByteBuffer& message, google::protobuf::MessageLite* header);
  Payload payload() const { return payload_; }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<absl::Span<const char>> payload_;
};

}  // namespace cairn::net
