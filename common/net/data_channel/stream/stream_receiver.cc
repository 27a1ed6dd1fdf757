#include "common/net/data_channel/stream/stream_receiver.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/data_channel/socket/socket.h"

namespace cairn::net {
namespace {

class BorrowedPayload final : public BorrowedBytes {
 public:
  BorrowedPayload(const PeerMemory& memory, absl::Span<const BorrowedRun> runs, size_t size)
      : memory_(memory), runs_(runs), size_(size) {}

  size_t size() const override { return size_; }
  absl::Status Scatter(size_t begin, absl::Span<const absl::Span<char>> to) const override {
    if (status_.ok()) status_ = memory_.Read(runs_, begin, to);
    return status_;
  }
  const absl::Status& status() const { return status_; }

 private:
  const PeerMemory& memory_;
  const absl::Span<const BorrowedRun> runs_;
  const size_t size_;
  mutable absl::Status status_;
};

bool FollowsOnSocket(const DataPrologue& prologue) {
  return prologue.kind == DataPrologue::kInline || prologue.kind == DataPrologue::kPinned;
}

absl::Status Unexpected(const DataPrologue& prologue) {
  return absl::InvalidArgumentError(
      absl::StrCat("frame: unexpected kind ", static_cast<uint32_t>(prologue.kind)));
}

}  // namespace

StreamReceiver::StreamReceiver(const FileDescriptor& socket, bool server, const StreamOptions& options,
                               DataReceiver& receiver, StreamSender& sender)
    : socket_(socket),
      server_(server),
      options_(options),
      receiver_(receiver),
      sender_(sender),
      reader_(socket) {}

void StreamReceiver::Begin(StreamTerms& terms) {
  peer_ = std::move(terms.peer);
  if (terms.rings == nullptr) return;
  ring_ = std::make_unique<RingReader>(*terms.rings, server_ ? 0 : 1);
  ring_wake_ = &terms.ring_wake;
  reader_.ReceiveDescriptors();
}

absl::Status StreamReceiver::Receive(int most) {
  reader_.set_unread();
  for (int messages = 0; messages < most; ++messages) {
    CAIRN_ASSIGN_OR_RETURN(const auto front, reader_.Front());
    if (!front.has_value()) return absl::OkStatus();
    const DataPrologue& prologue = front->prologue;
    if (FollowsOnSocket(prologue)) {
      if (!receiving_payload_) {
        CAIRN_ASSIGN_OR_RETURN(destination_, receiver_.Begin(front->header, prologue.payload_bytes));
        if (destination_.size() != prologue.payload_bytes)
          destination_ = reader_.Room(prologue.payload_bytes);
        receiving_payload_ = true;
      }
      CAIRN_ASSIGN_OR_RETURN(const bool complete, reader_.ReceivePayload(destination_));
      if (!complete) return absl::OkStatus();
    }
    payload_bytes_ += prologue.payload_bytes;
    CAIRN_RETURN_IF_ERROR(Deliver(*front));
    reader_.Pop();
    receiving_payload_ = false;
    large_ = large_ || prologue.payload_bytes > kSmallBytes;
    heard_.store(true, std::memory_order_relaxed);
    if (sender_.MustRest()) return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status StreamReceiver::Deliver(const IncomingMessage& message) {
  const DataPrologue& prologue = message.prologue;
  switch (prologue.kind) {
    case DataPrologue::kInline:
    case DataPrologue::kPinned: {
      if (prologue.kind == DataPrologue::kPinned) {
        CAIRN_RETURN_IF_ERROR(CheckOtherEnd(socket_.get()));  // otherwise the memory may have changed
        ++to_release_;
      }
      const absl::Span<const char> run = destination_;
      return receiver_.Complete(run.empty() ? Payload() : Payload(&run, 1));
    }
    case DataPrologue::kInRing:
      if (ring_ != nullptr) return DeliverInRing(message);
      break;
    case DataPrologue::kBorrowed:
      if (peer_ != nullptr || prologue.position != 0) return DeliverBorrowed(message);
      break;
    default:
      return HandleControl(message);
  }
  return Unexpected(prologue);
}

absl::Status StreamReceiver::HandleControl(const IncomingMessage& message) {
  const DataPrologue& prologue = message.prologue;
  switch (prologue.kind) {
    case DataPrologue::kFarewell:
      if (prologue.payload_bytes == 0 || message.header.empty()) return OtherEndClosed();
      return absl::Status(static_cast<absl::StatusCode>(prologue.payload_bytes),
                          absl::string_view(message.header.data(), message.header.size()));
    case DataPrologue::kReleased:
      return sender_.TakeBack(prologue.position);
    case DataPrologue::kMapped:
      return sender_.routes().Confirm(prologue.position);
    case DataPrologue::kAllowed:
      if (server_) break;
      sender_.SetCreditLimit(prologue.position);
      return absl::OkStatus();
    case DataPrologue::kBorrowing:
      if (!server_ || ring_ == nullptr) break;
      sender_.routes().SetBorrows(options_.offers_memory);
      return absl::OkStatus();
    case DataPrologue::kRegion:
      if (ring_ == nullptr || !options_.offers_memory) break;
      return MapRegion(message);
    default:
      break;
  }
  return Unexpected(prologue);
}

absl::Status StreamReceiver::Pass(absl::Span<const char> header, Payload payload) {
  CAIRN_RETURN_IF_ERROR(receiver_.Begin(header, 0).status());
  return receiver_.Complete(payload);
}

absl::Status StreamReceiver::DeliverInRing(const IncomingMessage& message) {
  const DataPrologue& prologue = message.prologue;
  const auto run = ring_->Take(prologue.position, prologue.payload_bytes);
  if (!run.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("frame: payload of ", prologue.payload_bytes, " bytes at ",
                                                   prologue.position, ", which is not in the ring"));
  }
  CAIRN_RETURN_IF_ERROR(Pass(message.header, Payload(&*run, 1)));
  if (ring_->Release()) (void)send(ring_wake_->get(), "c", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  return absl::OkStatus();
}

absl::Status StreamReceiver::DeliverBorrowed(const IncomingMessage& message) {
  const DataPrologue& prologue = message.prologue;
  absl::InlinedVector<BorrowedRun, 8> runs(prologue.runs);
  if (!runs.empty()) std::memcpy(runs.data(), message.runs.data(), message.runs.size());
  uint64_t bytes = 0;
  for (const BorrowedRun& run : runs) bytes += std::min<uint64_t>(run.bytes, kMaxPayloadBytes + 1);
  if (bytes == 0 || bytes != prologue.payload_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("frame: payload of ", prologue.payload_bytes,
                                                   " bytes does not match its runs of ", bytes, " bytes"));
  }
  if (prologue.position == 0) {
    const BorrowedPayload payload(*peer_, runs, bytes);
    CAIRN_RETURN_IF_ERROR(Pass(message.header, Payload(payload)));
    ++to_release_;
    return payload.status();
  }
  const auto region = regions_.find(prologue.position);
  if (region == regions_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: a payload in region ", prologue.position, ", which was not announced"));
  }
  CAIRN_ASSIGN_OR_RETURN(const MappedBytes payload, MappedBytes::Of(region->second, runs, socket_.get()));
  CAIRN_RETURN_IF_ERROR(Pass(message.header, Payload(payload)));
  ++to_release_;
  return absl::OkStatus();
}

// If the region cannot be mapped, nothing is answered, and the sender uses another method for its payloads.
absl::Status StreamReceiver::MapRegion(const IncomingMessage& message) {
  DataRegion region;
  if (message.header.size() != sizeof region || !message.runs.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("frame: invalid announcement of ",
                                                   message.header.size() + message.runs.size(),
                                                   " bytes for a region"));
  }
  std::memcpy(&region, message.header.data(), sizeof region);
  if (region.number == 0 || regions_.size() == kMaxRegions || regions_.count(region.number) > 0) {
    return absl::InvalidArgumentError(absl::StrCat("frame: cannot map region ", region.number,
                                                   ": its number is 0 or in use, or ", kMaxRegions,
                                                   " regions are mapped"));
  }
  FileDescriptor memory = reader_.TakeDescriptor();
  if (!memory.valid()) return absl::OkStatus();
  auto mapped = MappedRegion::Open(region, std::move(memory));
  if (absl::IsInvalidArgument(mapped.status())) return mapped.status();
  if (!mapped.ok()) return absl::OkStatus();
  regions_[region.number] = *std::move(mapped);
  sender_.SendControl(DataPrologue::kMapped, region.number);
  return absl::OkStatus();
}

void StreamReceiver::ConfirmReleased() {
  if (to_release_ == 0) return;
  sender_.SendControl(DataPrologue::kReleased, std::exchange(to_release_, 0));
}

void StreamReceiver::Close() {
  ring_.reset();
  reader_.Close();
  regions_.clear();
}

}  // namespace cairn::net
