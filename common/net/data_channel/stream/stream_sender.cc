#include "common/net/data_channel/stream/stream_sender.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/data_channel/shared_memory/mapped_region.h"
#include "common/net/data_channel/socket/round_trip.h"
#include "common/net/data_channel/socket/tcp_socket.h"

namespace cairn::net {
namespace {

// With this many unconfirmed payloads, the peer apparently confirms none, and further payloads are copied.
constexpr size_t kMaxPinned = 256;
// 10 Gbit/s: the credit added for each microsecond of a round trip, so that a long link stays busy.
constexpr uint64_t kBytesPerMicrosecond = 1250;

}  // namespace

StreamSender::StreamSender(const FileDescriptor& socket, const StreamOptions& options, const EventFd& wake)
    : socket_(socket),
      options_(options),
      wake_(wake),
      within_host_(StaysOnHost(socket)),
      writer_(socket, options.pins),
      progress_(std::chrono::steady_clock::now()) {}

void StreamSender::Begin(const StreamTerms& terms, bool server) {
  if (terms.rings != nullptr) writer_.UseRing(*terms.rings, server ? 1 : 0);
  routes_.SetBorrows(terms.peer_borrows);
  routes_.SetMaps(terms.maps);
  begun_ = true;
}

PayloadRoute StreamSender::RouteOf(FloatSpans payload) {
  PayloadRoutes::Route route = routes_.Of(payload);
  if (route.announce != nullptr) {
    const SharedRegion& region = *route.announce;
    const DataRegion told = {.number = region.number, .address = region.address, .bytes = region.bytes};
    Queue({.prologue = {.kind = DataPrologue::kRegion, .header_bytes = sizeof told},
           .header = std::string(BytesOf(told).data(), sizeof told),
           .region = std::move(route.announce)},
          std::nullopt);
  }
  const bool whole = route.region.has_value() || (within_host_ && writer_.Pins(payload));
  return {.region = route.region, .fragment_floats = whole ? kMaxPayloadFloats : kFragmentFloats};
}

void StreamSender::Send(std::string header, FloatSpans payload, std::shared_ptr<const void> owner,
                        const PayloadRoute& route, std::optional<int64_t> rank) {
  const size_t bytes = BytesIn(payload);
  CAIRN_CHECK(bytes <= static_cast<size_t>(kMaxPayloadBytes));
  OutgoingMessage message = {.prologue = {.header_bytes = static_cast<uint32_t>(header.size()),
                                          .payload_bytes = static_cast<uint32_t>(bytes)},
                             .header = std::move(header),
                             .owner = std::move(owner)};
  if (route.region.has_value()) {
    rank.reset();  // borrowed payloads are confirmed in order, so they are not reordered
    message.prologue.kind = DataPrologue::kBorrowed;
    message.prologue.runs = static_cast<uint32_t>(payload.size());
    message.prologue.position = *route.region;
    for (const auto& run : payload) {
      const BorrowedRun place = {.address = reinterpret_cast<uint64_t>(run.data()),
                                 .bytes = run.size() * sizeof(float)};
      message.header.append(BytesOf(place).data(), sizeof place);
    }
  } else {
    message.payload.assign(payload.begin(), payload.end());
  }
  Queue(std::move(message), rank);
}

void StreamSender::GrantCredit(uint64_t bytes, uint64_t received) {
  if (within_host_) return;
  const uint64_t come =
      received + kBytesPerMicrosecond * static_cast<uint64_t>(LeastRoundTrip(socket_).count());
  const uint64_t no_limit = CreditLimit::kNoLimit;
  SendControl(DataPrologue::kAllowed, bytes > no_limit - come ? no_limit : come + bytes);
}

void StreamSender::Queue(OutgoingMessage message, std::optional<int64_t> rank) {
  const bool borrowed = message.prologue.kind == DataPrologue::kBorrowed;
  const bool small = borrowed || message.prologue.payload_bytes <= kSmallBytes;
  // The other end may need these messages before it can continue, so they are sent ahead of payloads.
  const bool first =
      message.prologue.kind == DataPrologue::kReleased || message.prologue.kind == DataPrologue::kAllowed;
  bool send_here, overtakes;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    overtakes = first && blocked_ == Blocked::kByCreditLimit;  // so no thread is pumping
    if (overtakes) blocked_ = Blocked::kNot;
    send_here = small && (outgoing_.empty() || overtakes) && !pumping_ && begun_;
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
    wake_.Raise();
    return;
  }
  // With a limit of 2, the overtaken message is also tried, and waits for credit again.
  const Pumped pumped = PumpUpTo(overtakes ? 2 : 1);
  if (!pumped.status.ok()) {
    MutexLock lock(mutex_);
    failure_ = pumped.status;
  }
  if (pumped.left || !pumped.status.ok()) wake_.Raise();  // the stream's thread carries on
}

StreamSender::Pumped StreamSender::PumpUpTo(int most) {
  Pumped pumped;
  std::shared_ptr<const void> owner;  // released outside the lock
  for (int i = 0; i < most; ++i) {
    OutgoingMessage* const front = BeginTurn(&pumped.left);
    if (front == nullptr) break;
    const absl::StatusOr<Blocked> blocked = writer_.Write(*front);
    owner = std::move(front->owner);
    pumped.status = EndTurn(front, blocked, &owner, &pumped.left);
    if (!pumped.status.ok()) break;
  }
  return pumped;
}

OutgoingMessage* StreamSender::BeginTurn(bool* left) {
  MutexLock lock(mutex_);
  *left = Left();
  if (pumping_ || closed_ || outgoing_.empty() || blocked_ != Blocked::kNot) return nullptr;
  OutgoingMessage& front = outgoing_.front();
  if (FrontWaits()) {
    blocked_ = Blocked::kByCreditLimit;
    *left = false;
    return nullptr;
  }
  pumping_ = true;
  if (front.sent == 0) credit_limit_.Add(front.prologue.payload_bytes);
  if (front.prologue.kind == DataPrologue::kInline && front.sent == 0 && borrowed_.size() < kMaxPinned &&
      writer_.Pins(front.payload)) {
    front.prologue.kind = DataPrologue::kPinned;
    borrowed_.push_back(std::move(front.owner));  // before the other end can confirm it
  }
  return &front;
}

absl::Status StreamSender::EndTurn(OutgoingMessage* front, const absl::StatusOr<Blocked>& blocked,
                                   std::shared_ptr<const void>* owner, bool* left) {
  MutexLock lock(mutex_);
  pumping_ = false;
  paused_.NotifyAll();
  if (!blocked.ok()) return blocked.status();
  progressed_ = true;
  blocked_ = *blocked;
  if (blocked_ == Blocked::kNot) {
    outgoing_.Pop();
  } else if (!front->payload.empty()) {
    front->owner = std::move(*owner);
  }
  *left = Left();
  return absl::OkStatus();
}

bool StreamSender::FrontWaits() {
  const OutgoingMessage& front = outgoing_.front();
  if (front.sent > 0 || front.prologue.payload_bytes <= kSmallBytes) return false;
  return credit_limit_.WaitsUntil(std::chrono::steady_clock::now()).has_value();
}

absl::Status StreamSender::TakeBack(uint64_t count) {
  std::vector<std::shared_ptr<const void>> released;  // destroyed outside the lock
  MutexLock lock(mutex_);
  if (count > borrowed_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("frame: ", count, " payloads confirmed, but only ",
                                                   borrowed_.size(), " are outstanding"));
  }
  for (; count > 0; --count, borrowed_.pop_front()) released.push_back(std::move(borrowed_.front()));
  progressed_ = true;
  return absl::OkStatus();
}

void StreamSender::SetCreditLimit(uint64_t bytes) {
  {
    MutexLock lock(mutex_);
    credit_limit_.Set(bytes);
    if (blocked_ != Blocked::kByCreditLimit || FrontWaits()) return;
    blocked_ = Blocked::kNot;
  }
  wake_.Raise();  // a thread in ReceiveUntil() may be receiving
}

bool StreamSender::MustRest() {
  MutexLock lock(mutex_);
  return closed_ || outgoing_.size() > options_.rest_above;
}

absl::StatusOr<StreamSender::Outlook> StreamSender::LookAhead(TimePoint now) {
  MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  Outlook outlook = {.blocked = blocked_, .rests = outgoing_.size() > options_.rest_above};
  const bool untaken = !outgoing_.empty() || !borrowed_.empty();
  if (!untaken || std::exchange(progressed_, false)) progress_ = now;
  if (!untaken) return outlook;
  if (now - progress_ > options_.stall_limit) {
    return absl::UnavailableError("the other end has received nothing for too long");
  }
  const auto look = std::min(options_.stall_limit, std::chrono::milliseconds(1000));
  const bool can_send = !outgoing_.empty() && blocked_ == Blocked::kNot && !pumping_;
  outlook.timeout_ms = can_send ? 0 : static_cast<int>(look.count());
  if (blocked_ == Blocked::kByCreditLimit) {
    const TimePoint until = credit_limit_.WaitsUntil(now).value_or(now);
    outlook.timeout_ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(until - now).count());
  }
  return outlook;
}

void StreamSender::Unblock(bool socket, bool ring) {
  MutexLock lock(mutex_);
  if ((blocked_ == Blocked::kBySocket && socket) || (blocked_ == Blocked::kByRing && ring) ||
      (blocked_ == Blocked::kByCreditLimit && !FrontWaits())) {
    blocked_ = Blocked::kNot;
  }
}

void StreamSender::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
}

bool StreamSender::AwaitPause() {
  MutexLock lock(mutex_);
  while (pumping_) paused_.Wait(mutex_);  // pumping does not block
  return outgoing_.empty() || outgoing_.front().sent == 0;
}

bool StreamSender::AnyBorrowed() {
  MutexLock lock(mutex_);
  return !borrowed_.empty();
}

void StreamSender::Clear() {
  Outbox<OutgoingMessage> unsent;  // destroyed outside the lock
  std::deque<std::shared_ptr<const void>> unread;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    while (pumping_) paused_.Wait(mutex_);
    std::swap(unsent, outgoing_);
    unread.swap(borrowed_);
  }
  // Replies may keep the stream alive for longer, but nothing is sent any more.
  writer_.Close();
}

}  // namespace cairn::net
