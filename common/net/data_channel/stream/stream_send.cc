// DataStream: sending.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/data_channel/socket/round_trip.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/data_channel/socket/tcp_socket.h"
#include "common/net/data_channel/stream/stream.h"

namespace cairn::net {
namespace {

// The smallest payload that is borrowed or mapped, if its runs are not too small. Announcing an address, and
// reading from it, costs as much as copying a few hundred bytes.
constexpr size_t kMinBorrowed = size_t{32} << 10;
// The smallest payload that is pinned, if it is neither borrowed nor mapped: for smaller ones the copy costs
// less than the system calls.
constexpr size_t kMinPinned = size_t{128} << 10;
constexpr size_t kMinPinnedRun = size_t{16} << 10;  // average bytes of a pinned run
// With this many unconfirmed payloads, the peer apparently confirms none, and further payloads are copied.
constexpr size_t kMaxPinned = 256;
// 10 Gbit/s: the credit added for each microsecond of a round trip, so that a long link stays busy.
constexpr uint64_t kBytesPerMicrosecond = 1250;
// Time for the other end to read why the stream ends and to close its socket, and for its kernel to learn
// that the connection has ended.
constexpr auto kLinger = std::chrono::seconds(1);

size_t BytesIn(FloatSpans payload) {
  size_t bytes = 0;
  for (const auto& run : payload) bytes += run.size() * sizeof(float);
  return bytes;
}

}  // namespace

std::optional<uint64_t> DataStream::BorrowedFrom(FloatSpans payload) {
  if (BytesIn(payload) < std::max(kMinBorrowed, kMinBorrowedRun * payload.size())) return std::nullopt;
  std::shared_ptr<const SharedRegion> region;
  if (maps_) region = SharedBuffer::RegionOf(payload);
  if (region != nullptr) {
    bool tell = false;
    {
      MutexLock lock(mutex_);
      if (const auto known = told_.find(region->number); known != told_.end()) {
        if (known->second) return region->number;
      } else if (told_.size() < kMaxRegions) {
        told_[region->number] = false;
        tell = true;
      }
    }
    if (tell) {
      const DataRegion told = {.number = region->number, .address = region->address, .bytes = region->bytes};
      Queue({.prologue = {.kind = DataPrologue::kRegion, .header_bytes = sizeof told},
             .header = std::string(BytesOf(told).data(), sizeof told),
             .region = std::move(region)});
    }
  }
  return offers_memory_ ? std::optional<uint64_t>(0) : std::nullopt;
}

bool DataStream::Pins(FloatSpans payload) const {
  return pins_ && BytesIn(payload) >= std::max(kMinPinned, kMinPinnedRun * payload.size());
}

int64_t DataStream::FragmentSizeOf(FloatSpans payload) const {
  return within_host_ && Pins(payload) ? kMaxPayloadFloats : kFragmentFloats;
}

void DataStream::Send(absl::Span<const char> header, FloatSpans payload, std::shared_ptr<const void> owner,
                      std::optional<int64_t> rank) {
  const size_t bytes = BytesIn(payload);
  Message message = {.prologue = {.header_bytes = static_cast<uint32_t>(header.size()),
                                  .payload_bytes = static_cast<uint32_t>(bytes)},
                     .header = std::string(header.begin(), header.end()),
                     .owner = std::move(owner)};
  if (const auto region = BorrowedFrom(payload); region.has_value()) {
    rank.reset();  // borrowed payloads are confirmed in order, so they are not reordered
    CAIRN_CHECK(bytes <= static_cast<size_t>(kMaxPayloadBytes));
    message.prologue.kind = DataPrologue::kBorrowed;
    message.prologue.runs = static_cast<uint32_t>(payload.size());
    message.prologue.position = *region;
    for (const auto& run : payload) {
      const BorrowedRun place = {.address = reinterpret_cast<uint64_t>(run.data()),
                                 .bytes = run.size() * sizeof(float)};
      message.header.append(BytesOf(place).data(), sizeof place);
    }
  } else {
    CAIRN_CHECK(bytes <= static_cast<size_t>(kMaxPayloadBytes));
    message.payload.assign(payload.begin(), payload.end());
  }
  Queue(std::move(message), rank);
}

void DataStream::Allow(uint64_t bytes) {
  CAIRN_CHECK(server_);
  if (within_host_) return;
  const uint64_t come =
      payload_bytes_ + kBytesPerMicrosecond * static_cast<uint64_t>(LeastRoundTrip(socket_).count());
  const uint64_t all = bytes > kNoLimit - come ? kNoLimit : come + bytes;
  Queue({.prologue = {.kind = DataPrologue::kAllowed, .position = all}});
}

bool DataStream::FrontWaits() {
  const Message& front = outgoing_.front();
  if (front.sent > 0 || front.prologue.payload_bytes <= kSmallBytes) return false;
  return credit_limit_.WaitsUntil(std::chrono::steady_clock::now()).has_value();
}

void DataStream::Queue(Message message, std::optional<int64_t> rank) {
  const bool borrowed = message.prologue.kind == DataPrologue::kBorrowed;
  const bool small = borrowed || message.prologue.payload_bytes <= kSmallBytes;
  // The other end may need these messages before it can continue, so they are sent ahead of payloads.
  const bool first =
      message.prologue.kind == DataPrologue::kReleased || message.prologue.kind == DataPrologue::kAllowed;
  bool send_here, overtakes;
  {
    MutexLock lock(mutex_);
    if (closing_) return;
    overtakes = first && blocked_ == Blocked::kByCreditLimit;  // so no thread is pumping
    if (overtakes) blocked_ = Blocked::kNot;
    send_here = small && (outgoing_.empty() || overtakes) && !pumping_ && greeted_;
    const bool thread_knows = !outgoing_.empty() && !overtakes;
    if (borrowed) borrowed_.push_back(std::move(message.owner));
    if (overtakes) {
      outgoing_.PushFront(std::move(message));
    } else if (first) {
      outgoing_.PushFirst(std::move(message));
    } else {
      outgoing_.Push(std::move(message), rank);
    }
    if (thread_knows) return;
  }
  if (!send_here) {
    Wake();
    return;
  }
  // With a limit of 2, Pump() also tries the overtaken message, which waits for credit again.
  const absl::Status status = Pump(overtakes ? 2 : 1);
  MutexLock lock(mutex_);
  if (!status.ok()) failure_ = status;
  const bool waits = outgoing_.empty() || blocked_ == Blocked::kByCreditLimit;
  if (!waits || !status.ok()) Wake();  // the stream's thread carries on
}

absl::Status DataStream::Pump(int most) {
  std::shared_ptr<const void> released;  // destroyed outside the lock
  for (int i = 0; i < most; ++i) {
    Message* front;
    {
      MutexLock lock(mutex_);
      if (pumping_ || closing_ || outgoing_.empty() || blocked_ != Blocked::kNot) return absl::OkStatus();
      front = &outgoing_.front();
      if (FrontWaits()) {
        blocked_ = Blocked::kByCreditLimit;
        return absl::OkStatus();
      }
      pumping_ = true;
      if (front->sent == 0) credit_limit_.Add(front->prologue.payload_bytes);
      if (front->prologue.kind == DataPrologue::kInline && front->sent == 0 &&
          borrowed_.size() < kMaxPinned && Pins(front->payload)) {
        front->prologue.kind = DataPrologue::kPinned;
        borrowed_.push_back(std::move(front->owner));  // before the other end can confirm it
      }
    }
    absl::StatusOr<Blocked> blocked = SendPartOf(*front);
    released = std::move(front->owner);
    MutexLock lock(mutex_);
    pumping_ = false;
    stepped_back_.NotifyAll();
    if (!blocked.ok()) return blocked.status();
    progressed_ = true;
    blocked_ = *blocked;
    if (*blocked == Blocked::kNot) {
      outgoing_.Pop();
    } else if (!front->payload.empty()) {
      front->owner = std::move(released);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<DataStream::Blocked> DataStream::PutIntoRing(Message& message) {
  CAIRN_CHECK(message.prologue.payload_bytes <= static_cast<size_t>(kFragmentFloats) * sizeof(float));
  const RingWriter::Reserved place = writer_->Reserve(message.prologue.payload_bytes);
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

absl::StatusOr<DataStream::Blocked> DataStream::SendPartOf(Message& message) {
  if (writer_ != nullptr && BytesIn(message.payload) > kSmallBytes) {
    CAIRN_ASSIGN_OR_RETURN(const Blocked blocked, PutIntoRing(message));
    if (blocked != Blocked::kNot) return blocked;
  }
  const size_t front = sizeof message.prologue + message.header.size();
  const size_t bytes = front + BytesIn(message.payload);
  while (message.sent < bytes) {
    const bool held = message.prologue.kind == DataPrologue::kPinned && pins_;
    if (held && message.sent >= front) {
      const size_t sent = SendPages(message);
      if (sent == 0 && pins_) return Blocked::kBySocket;
      message.sent += sent;
      continue;
    }
    auto runs = UnsentOf(message, /*with_payload=*/!held);
    msghdr parts{};
    parts.msg_iov = runs.data();
    parts.msg_iovlen = runs.size();
    Passed passed;
    if (message.region != nullptr && message.sent == 0) passed.Attach({message.region->memory.get()}, parts);
    const int more = held ? MSG_MORE : 0;
    const ssize_t sent = sendmsg(socket_.get(), &parts, MSG_NOSIGNAL | MSG_DONTWAIT | more);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Blocked::kBySocket;
    if (sent < 0) return SystemFailure("sending");
    message.sent += static_cast<size_t>(sent);
  }
  return Blocked::kNot;
}

absl::InlinedVector<iovec, 8> DataStream::UnsentOf(const Message& message, bool with_payload) {
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

size_t DataStream::SendPages(const Message& message) {
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

// Sends the other end the status with which the stream ends, if this is possible between two messages.
void DataStream::SendFarewell(const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    while (pumping_) stepped_back_.Wait(mutex_);
    if (closing_ || (!outgoing_.empty() && outgoing_.front().sent > 0)) return;
  }
  const absl::string_view text = why.message().substr(0, kReadAhead);
  const DataPrologue prologue = {.kind = DataPrologue::kFarewell,
                                 .header_bytes = static_cast<uint32_t>(text.size()),
                                 .payload_bytes = static_cast<uint32_t>(why.code())};
  std::string message(BytesOf(prologue).data(), sizeof prologue);
  absl::StrAppend(&message, text);
  (void)SendPassing(socket_, message, {});
  Linger();
}

// TCP discards the final status if the socket is closed while received data is unread.
void DataStream::Linger() {
  if (!IsTcp(socket_)) return;
  shutdown(socket_.get(), SHUT_WR);
  const auto deadline = std::chrono::steady_clock::now() + kLinger;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready[2] = {{socket_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (left.count() <= 0 || poll(ready, 2, static_cast<int>(left.count())) < 0) return;
    {
      MutexLock lock(mutex_);
      if (closing_) return;
    }
    char drained[64];
    if (ready[1].revents != 0) (void)!read(wake_.get(), drained, sizeof drained);
    if (ready[0].revents != 0 && recv(socket_.get(), in_.data(), in_.size(), MSG_DONTWAIT) <= 0) return;
  }
}

// The other end of a Unix socket notices the end at once; the other end of a TCP socket must be notified.
void DataStream::ShutDown() {
  shutdown(socket_.get(), SHUT_RDWR);
  {
    MutexLock lock(mutex_);
    if (borrowed_.empty()) return;
  }
  if (IsTcp(socket_)) EndTcp(socket_, kLinger);
}

}  // namespace cairn::net
