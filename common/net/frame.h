// Frames: a protobuf header and a raw payload in one gRPC message, without copying the payload.
//
// On the wire a frame is `message { Header header = 1; bytes payload = 2; }` (session.proto). Encoding takes
// the payload by reference, decoding hands out the slices in which it arrived: about twenty for 1 MiB, and
// one may end in the middle of a float.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

// Bytes that still lie in the sender's memory (direct/peer_memory.h). One thread.
class LentBytes {
 public:
  virtual ~LentBytes() = default;
  virtual size_t size() const = 0;
  // Copies them, from `begin` on, to one place after another, in one go. A failure is the stream's end:
  // UNAVAILABLE when the sender has gone, INVALID_ARGUMENT when they are not where it said; what the places
  // hold is then unspecified.
  virtual absl::Status Scatter(size_t begin, absl::Span<const absl::Span<char>> to) const = 0;
  // To one place.
  absl::Status Read(size_t begin, absl::Span<char> to) const { return Scatter(begin, {&to, 1}); }

  // The bytes where they are, for whoever wants to use them there, also after the stream's end. The sender
  // leaves them as they are until it has been told that they were used, by what this message is part of, or
  // for ever (direct/shared_buffer.h).
  struct Kept {
    std::shared_ptr<const void> owner;
    absl::Span<const absl::Span<const char>> runs;  // the list itself as long as this object
  };
  // None where they must be copied.
  virtual std::optional<Kept> Keep() const { return std::nullopt; }
};

// A received payload: borrowed byte runs that together are its bytes, or bytes that are lent.
class Payload {
 public:
  using Runs = absl::Span<const absl::Span<const char>>;
  Payload() = default;
  Payload(Runs runs) : runs_(runs) {}                                        // NOLINT: what most payloads are
  Payload(const std::vector<absl::Span<const char>>& runs) : runs_(runs) {}  // NOLINT
  Payload(const absl::Span<const char>* runs, size_t count) : runs_(runs, count) {}
  explicit Payload(const LentBytes& lent) : lent_(&lent) {}

  bool empty() const { return lent_ == nullptr && runs_.empty(); }
  // None when they are lent.
  Runs runs() const { return runs_; }
  // Null when they are here.
  const LentBytes* lent() const { return lent_; }

 private:
  Runs runs_;
  const LentBytes* lent_ = nullptr;
};

int64_t PayloadBytes(Payload payload);
// Copies the payload to `to`, which has room for PayloadBytes(). Fails as LentBytes::Read().
absl::Status CopyPayload(Payload payload, void* to);

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
