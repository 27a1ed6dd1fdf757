// Frames: a protobuf header and a raw payload in one gRPC message, without copying the payload.
//
// On the wire a frame is `message { Header header = 1; bytes payload = 2; }` (session.proto). Encoding takes
// the payload by reference. Decoding returns the slices in which it arrived: about twenty for 1 MiB, and a
// slice may end in the middle of a float.
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
// Most headers are small. The longest have the settings and counts of 65536 groups of variables; a longer one is
// malformed.
inline constexpr int64_t kMaxHeaderBytes = int64_t{512} << 10;

// The limit of a message: one frame of the largest size.
inline constexpr int kMaxMessageBytes = static_cast<int>(kMaxPayloadBytes + kMaxHeaderBytes + 64);

using FloatSpans = absl::Span<const absl::Span<const float>>;

// Zero-copy payload bytes that are still in the sender's memory: borrowed or mapped
// (data_channel/shared_memory/peer_memory.h). One thread.
class BorrowedBytes {
 public:
  virtual ~BorrowedBytes() = default;
  virtual size_t size() const = 0;
  // Copies the bytes from offset `begin` on into the destinations in turn, in one operation. UNAVAILABLE if
  // the sender is gone, INVALID_ARGUMENT if the sender has announced an invalid address. After such an error
  // the contents of the destinations are unspecified, and the stream must end.
  virtual absl::Status Scatter(size_t begin, absl::Span<const absl::Span<char>> to) const = 0;
  // Copies to a single destination.
  absl::Status Read(size_t begin, absl::Span<char> to) const { return Scatter(begin, {&to, 1}); }

  // Mapped bytes, for use in place. They stay valid after the end of the stream. The sender changes them only
  // after the exchange that this message belongs to has notified it that they were used. If that never
  // happens, the bytes never change (data_channel/shared_memory/shared_buffer.h).
  struct Kept {
    std::shared_ptr<const void> owner;
    absl::Span<const absl::Span<const char>> runs;  // the list is valid as long as this object
  };
  // Nullopt if the bytes must be copied.
  virtual std::optional<Kept> Keep() const { return std::nullopt; }
};

// A received payload: either a list of byte runs in this process, or bytes in the sender's memory
// (BorrowedBytes).
class Payload {
 public:
  using Runs = absl::Span<const absl::Span<const char>>;
  Payload() = default;
  Payload(Runs runs) : runs_(runs) {}                                        // NOLINT: most payloads are runs
  Payload(const std::vector<absl::Span<const char>>& runs) : runs_(runs) {}  // NOLINT
  Payload(const absl::Span<const char>* runs, size_t count) : runs_(runs, count) {}
  explicit Payload(const BorrowedBytes& borrowed) : borrowed_(&borrowed) {}

  bool empty() const { return borrowed_ == nullptr && runs_.empty(); }
  // Empty if the bytes are in the sender's memory.
  Runs runs() const { return runs_; }
  // Null if the bytes are in this process.
  const BorrowedBytes* borrowed() const { return borrowed_; }

 private:
  Runs runs_;
  const BorrowedBytes* borrowed_ = nullptr;
};

int64_t PayloadBytes(Payload payload);
// Copies the payload to `to`, which has room for PayloadBytes(). Fails as BorrowedBytes::Read() does.
absl::Status CopyPayload(Payload payload, void* to);

// The memory of the payload must stay unchanged until gRPC releases the message: either `owner` keeps it
// alive, or, if `owner` is null, the caller waits for the end of its stream.
grpc::ByteBuffer EncodeFrame(const google::protobuf::MessageLite& header, FloatSpans payload,
                             const std::shared_ptr<const void>& owner);

// A decoded frame keeps the memory of the message alive.
class DecodedFrame {
 public:
  // INVALID_ARGUMENT for anything that is not exactly a header and at most kMaxPayloadBytes of payload;
  // `header` is unspecified after this error.
  absl::Status Decode(const grpc::ByteBuffer& message, google::protobuf::MessageLite* header);
  Payload payload() const { return payload_; }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<absl::Span<const char>> payload_;
};

}  // namespace cairn::net
