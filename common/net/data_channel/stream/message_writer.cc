#include "common/net/data_channel/stream/message_writer.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/core/status.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/data_channel/stream/stream_options.h"

namespace cairn::net {
namespace {

// The smallest payload that is pinned, if it is neither borrowed nor mapped: for smaller ones the copy costs
// less than the system calls.
constexpr size_t kMinPinned = size_t{128} << 10;
constexpr size_t kMinPinnedRun = size_t{16} << 10;  // average bytes of a pinned run

}  // namespace

size_t BytesIn(FloatSpans payload) {
  size_t bytes = 0;
  for (const auto& run : payload) bytes += run.size() * sizeof(float);
  return bytes;
}

void MessageWriter::UseRing(const SharedRings& rings, int ring) {
  pins_ = false;
  ring_ = std::make_unique<RingWriter>(rings, ring);
}

bool MessageWriter::Pins(FloatSpans payload) const {
  return pins_ && BytesIn(payload) >= std::max(kMinPinned, kMinPinnedRun * payload.size());
}

void MessageWriter::Close() {
  pages_.reset();
  ring_.reset();
}

absl::StatusOr<Blocked> MessageWriter::PutIntoRing(OutgoingMessage& message) {
  CAIRN_CHECK(message.prologue.payload_bytes <= static_cast<size_t>(kFragmentFloats) * sizeof(float));
  const RingWriter::Reserved place = ring_->Reserve(message.prologue.payload_bytes);
  if (place.outcome == RingWriter::Outcome::kFull) return Blocked::kByRing;
  if (place.outcome == RingWriter::Outcome::kBroken) {
    return absl::InvalidArgumentError("the other end corrupted the ring");
  }
  char* to = place.data;
  for (const auto& run : message.payload) {
    std::memcpy(to, run.data(), run.size() * sizeof(float));
    to += run.size() * sizeof(float);
  }
  message.payload.clear();
  message.prologue.kind = DataPrologue::kInRing;
  message.prologue.position = place.position;
  return Blocked::kNot;
}

absl::StatusOr<Blocked> MessageWriter::Write(OutgoingMessage& message) {
  if (ring_ != nullptr && BytesIn(message.payload) > kSmallBytes) {
    CAIRN_ASSIGN_OR_RETURN(const Blocked blocked, PutIntoRing(message));
    if (blocked != Blocked::kNot) return blocked;
  }
  const size_t front = sizeof message.prologue + message.header.size();
  const size_t bytes = front + BytesIn(message.payload);
  while (message.sent < bytes) {
    const bool pinned = message.prologue.kind == DataPrologue::kPinned && pins_;
    if (pinned && message.sent >= front) {
      const size_t sent = SendPages(message);
      if (sent == 0 && pins_) return Blocked::kBySocket;
      message.sent += sent;
      continue;
    }
    auto runs = UnsentOf(message, /*with_payload=*/!pinned);
    msghdr parts{};
    parts.msg_iov = runs.data();
    parts.msg_iovlen = runs.size();
    Passed passed;
    if (message.region != nullptr && message.sent == 0) passed.Attach({message.region->memory.get()}, parts);
    const int more = pinned ? MSG_MORE : 0;
    const ssize_t sent = sendmsg(socket_.get(), &parts, MSG_NOSIGNAL | MSG_DONTWAIT | more);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Blocked::kBySocket;
    if (sent < 0) return SystemFailure("sending");
    message.sent += static_cast<size_t>(sent);
  }
  return Blocked::kNot;
}

absl::InlinedVector<iovec, 8> MessageWriter::UnsentOf(const OutgoingMessage& message, bool with_payload) {
  absl::InlinedVector<iovec, 8> runs;
  size_t skip = message.sent;
  const auto add = [&](const void* data, size_t count) {
    if (skip >= count) {
      skip -= count;
    } else if (runs.size() < kMaxRuns) {
      runs.push_back({const_cast<char*>(static_cast<const char*>(data)) + skip, count - skip});
      skip = 0;
    }
  };
  add(&message.prologue, sizeof message.prologue);
  add(message.header.data(), message.header.size());
  if (!with_payload) return runs;
  for (const auto& run : message.payload) add(run.data(), run.size() * sizeof(float));
  return runs;
}

size_t MessageWriter::SendPages(const OutgoingMessage& message) {
  if (pages_ == nullptr) {
    auto opened = ZeroCopySender::Open();
    if (opened.ok()) pages_ = *std::move(opened);
  }
  if (pages_ != nullptr) {
    const auto sent = pages_->Send(socket_, UnsentOf(message, /*with_payload=*/true));
    if (sent.ok()) return *sent;
  }
  // Send a copy instead, from the present position of the socket. If the socket is at fault, that send
  // reports it.
  pages_.reset();
  pins_ = false;
  return 0;
}

}  // namespace cairn::net
