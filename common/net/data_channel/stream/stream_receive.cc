// DataStream: receiving.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/data_channel/stream/stream.h"

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

}  // namespace

bool DataStream::ReceiveUntil(absl::FunctionRef<bool()> enough,
                              std::chrono::steady_clock::time_point deadline) {
  CAIRN_CHECK(!server_);
  {
    MutexLock lock(mutex_);
    if (ending_ || closing_ || receiving_ != Receiving::kNobody) return false;
    receiving_ = Receiving::kCaller;
    Arm();
  }
  absl::StatusOr<bool> readable = true;
  while (readable.ok() && *readable && !enough() && std::chrono::steady_clock::now() < deadline) {
    if (!unread_) {
      readable = AwaitReadable(deadline);
      if (!readable.ok() || !*readable) break;
    }
    if (absl::Status status = Receive(); !status.ok()) readable = std::move(status);
    SendReleased();
  }
  return StepBack(readable.status());
}

absl::StatusOr<bool> DataStream::AwaitReadable(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  const auto most = std::chrono::milliseconds(std::chrono::hours(1));  // then `enough` is called again
  pollfd ready[2] = {{socket_.get(), POLLIN, 0}, {nudge_.get(), POLLIN, 0}};
  const int found =
      caller_waits_.Wait(static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), most).count()),
                         [&](int most_ms) { return poll(ready, std::size(ready), most_ms); });
  if (found < 0 && errno != EINTR) return SystemFailure("poll");
  uint64_t nudges;
  if (ready[1].revents != 0) (void)!read(nudge_.get(), &nudges, sizeof nudges);
  return found > 0 && ready[1].revents == 0;
}

bool DataStream::StepBack(const absl::Status& status) {
  MutexLock lock(mutex_);
  receiving_ = Receiving::kNobody;
  Arm();
  if (failure_.ok()) failure_ = status;
  if (!status.ok() || unread_) Wake();  // the stream's thread carries on
  stepped_back_.NotifyAll();
  return status.ok() && !ending_ && !closing_;
}

void DataStream::Nudge() {
  MutexLock lock(mutex_);
  if (receiving_ != Receiving::kCaller) return;
  const uint64_t one = 1;
  (void)!write(nudge_.get(), &one, sizeof one);
}

// Returns false if there is nothing more to receive at present.
absl::StatusOr<bool> DataStream::ReceiveInto(char* to, size_t count, size_t* got) {
  for (;;) {
    iovec run = {to, count};
    msghdr message{};
    message.msg_iov = &run;
    message.msg_iovlen = 1;
    Passed room;
    if (rings_ != nullptr) room.MakeRoom(message);
    const ssize_t received = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      unread_ = false;
      return false;
    }
    if (received < 0) return SystemFailure("receiving");
    if (rings_ != nullptr) passed_all_ = Passed::Take(message, passed_) && passed_all_;
    if (!passed_all_) passed_.clear();  // it is unknown which descriptor belongs to which region
    if (received == 0) return OtherEndClosed();
    if (passed_.size() > kMaxRegions)
      return absl::InvalidArgumentError("frame: more descriptors than regions");
    *got += static_cast<size_t>(received);
    return true;
  }
}

absl::Status DataStream::Receive() {
  unread_ = true;
  for (int messages = 0; messages < kTurn;) {
    // The number of bytes that must have arrived: first the prologue, then also the header and the runs.
    DataPrologue prologue;
    size_t needed = sizeof prologue;
    if (in_end_ - in_begin_ >= needed) {
      std::memcpy(&prologue, in_.data() + in_begin_, sizeof prologue);
      if (prologue.header_bytes > kMaxHeaderBytes) {
        return absl::InvalidArgumentError(
            absl::StrCat("frame: invalid header of ", prologue.header_bytes, " bytes"));
      }
      if (prologue.runs > kMaxBorrowedRuns) {
        return absl::InvalidArgumentError(absl::StrCat("frame: invalid payload of ", prologue.runs, " runs"));
      }
      needed += prologue.header_bytes + prologue.runs * sizeof(BorrowedRun);
    }
    if (in_end_ - in_begin_ < needed) {
      std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
      in_end_ -= std::exchange(in_begin_, 0);
      if (in_.size() < needed) in_.resize(needed);
      CAIRN_ASSIGN_OR_RETURN(const bool more,
                             ReceiveInto(in_.data() + in_end_, in_.size() - in_end_, &in_end_));
      if (!more) return absl::OkStatus();
      continue;
    }
    const absl::Span<const char> front(in_.data() + in_begin_ + sizeof prologue, needed - sizeof prologue);
    if (prologue.kind == DataPrologue::kFarewell) {
      if (prologue.payload_bytes == 0 || front.empty()) return OtherEndClosed();
      return absl::Status(static_cast<absl::StatusCode>(prologue.payload_bytes),
                          absl::string_view(front.data(), front.size()));
    }
    if (prologue.payload_bytes > kMaxPayloadBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("frame: invalid payload of ", prologue.payload_bytes, " bytes"));
    }
    const bool follows = prologue.kind == DataPrologue::kInline || prologue.kind == DataPrologue::kPinned;
    if (follows && prologue.payload_bytes > 0) {
      // The header stays in in_ until its payload is complete. The bytes behind it are the beginning of the
      // payload.
      if (payload_got_ == 0) CAIRN_RETURN_IF_ERROR(FindDestination(prologue, front));
      const size_t here = std::min(in_end_ - in_begin_ - needed, prologue.payload_bytes - payload_got_);
      if (here > 0) {
        std::memcpy(destination_.data() + payload_got_, in_.data() + in_begin_ + needed, here);
        std::memmove(in_.data() + in_begin_ + needed, in_.data() + in_begin_ + needed + here,
                     in_end_ - in_begin_ - needed - here);
        in_end_ -= here;
        payload_got_ += here;
      }
      if (payload_got_ < prologue.payload_bytes) {
        CAIRN_ASSIGN_OR_RETURN(const bool more,
                               ReceiveInto(destination_.data() + payload_got_,
                                           prologue.payload_bytes - payload_got_, &payload_got_));
        if (!more) return absl::OkStatus();
        continue;
      }
    }
    CAIRN_RETURN_IF_ERROR(Deliver(prologue, front));
    heard_more_.store(true, std::memory_order_relaxed);
    large_ = large_ || prologue.payload_bytes > kSmallBytes;
    payload_got_ = 0;
    in_begin_ += needed;
    ++messages;
    MutexLock lock(mutex_);
    if (closing_ || outgoing_.size() > options_.rest_above) return absl::OkStatus();
  }
  return absl::OkStatus();
}

// Decides where a payload from the socket is assembled.
absl::Status DataStream::FindDestination(const DataPrologue& prologue, absl::Span<const char> front) {
  CAIRN_ASSIGN_OR_RETURN(destination_,
                         receiver_.Begin(front.first(prologue.header_bytes), prologue.payload_bytes));
  if (destination_.size() == prologue.payload_bytes) return absl::OkStatus();
  payload_.resize(std::max<size_t>(payload_.size(), prologue.payload_bytes));
  destination_ = absl::MakeSpan(payload_);
  return absl::OkStatus();
}

absl::Status DataStream::Pass(absl::Span<const char> header, Payload payload) {
  CAIRN_RETURN_IF_ERROR(receiver_.Begin(header, 0).status());
  return receiver_.Complete(payload);
}

absl::Status DataStream::Deliver(const DataPrologue& prologue, absl::Span<const char> front) {
  payload_bytes_ += prologue.payload_bytes;
  const bool borrowed = prologue.kind == DataPrologue::kBorrowed;
  if (borrowed && (peer_ != nullptr || prologue.position != 0)) return DeliverBorrowed(prologue, front);
  if (prologue.kind == DataPrologue::kRegion && rings_ != nullptr && options_.offers_memory) {
    return MapRegion(front);
  }
  if (prologue.kind == DataPrologue::kAllowed && !server_) {
    TakeCreditLimit(prologue.position);
    return absl::OkStatus();
  }
  if (prologue.kind == DataPrologue::kMapped) return HasMapped(prologue.position);
  if (prologue.kind == DataPrologue::kReleased) return TakeBack(prologue.position);
  if (prologue.kind == DataPrologue::kBorrowing && server_ && rings_ != nullptr) {
    offers_memory_ = options_.offers_memory;
    return absl::OkStatus();
  }
  const absl::Span<const char> header = front.subspan(0, prologue.header_bytes);
  if (prologue.kind == DataPrologue::kInline || prologue.kind == DataPrologue::kPinned) {
    if (prologue.kind == DataPrologue::kPinned) {
      CAIRN_RETURN_IF_ERROR(CheckOtherEnd(socket_.get()));  // otherwise the memory may have changed
      ++to_release_;
    }
    if (prologue.payload_bytes == 0) return Pass(header, Payload());
    const absl::Span<const char> run = destination_.first(prologue.payload_bytes);
    return receiver_.Complete(Payload(&run, 1));
  }
  if (prologue.kind != DataPrologue::kInRing || reader_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: unexpected kind ", static_cast<uint32_t>(prologue.kind)));
  }
  const auto run = reader_->Take(prologue.position, prologue.payload_bytes);
  if (!run.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("frame: payload of ", prologue.payload_bytes, " bytes at ",
                                                   prologue.position, ", which is not in the ring"));
  }
  CAIRN_RETURN_IF_ERROR(Pass(header, Payload(&*run, 1)));
  if (reader_->Release()) (void)send(ring_wake_.get(), "c", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  return absl::OkStatus();
}

absl::Status DataStream::DeliverBorrowed(const DataPrologue& prologue, absl::Span<const char> front) {
  absl::InlinedVector<BorrowedRun, 8> runs(prologue.runs);
  if (!runs.empty())
    std::memcpy(runs.data(), front.data() + prologue.header_bytes, runs.size() * sizeof(BorrowedRun));
  uint64_t bytes = 0;
  for (const BorrowedRun& run : runs) bytes += std::min<uint64_t>(run.bytes, kMaxPayloadBytes + 1);
  if (bytes == 0 || bytes != prologue.payload_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("frame: payload of ", prologue.payload_bytes,
                                                   " bytes does not match its runs of ", bytes, " bytes"));
  }
  const absl::Span<const char> header = front.subspan(0, prologue.header_bytes);
  if (prologue.position == 0) {
    const BorrowedPayload payload(*peer_, runs, bytes);
    CAIRN_RETURN_IF_ERROR(Pass(header, Payload(payload)));
    ++to_release_;
    return payload.status();
  }
  const auto region = regions_.find(prologue.position);
  if (region == regions_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: a payload in region ", prologue.position, ", which was not announced"));
  }
  CAIRN_ASSIGN_OR_RETURN(const MappedBytes payload, MappedBytes::Of(region->second, runs, socket_.get()));
  CAIRN_RETURN_IF_ERROR(Pass(header, Payload(payload)));
  ++to_release_;
  return absl::OkStatus();
}

// If the region cannot be mapped, nothing is answered, and the sender uses another method for its payloads.
absl::Status DataStream::MapRegion(absl::Span<const char> told) {
  DataRegion region;
  if (told.size() != sizeof region) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: invalid announcement of ", told.size(), " bytes for a region"));
  }
  std::memcpy(&region, told.data(), sizeof region);
  if (region.number == 0 || regions_.size() == kMaxRegions || regions_.count(region.number) > 0) {
    return absl::InvalidArgumentError(absl::StrCat("frame: cannot map region ", region.number,
                                                   ": its number is 0 or in use, or ", kMaxRegions,
                                                   " regions are mapped"));
  }
  if (passed_.empty()) return absl::OkStatus();
  auto mapped = MappedRegion::Open(region, std::move(passed_.front()));
  passed_.erase(passed_.begin());
  if (absl::IsInvalidArgument(mapped.status())) return mapped.status();
  if (!mapped.ok()) return absl::OkStatus();
  regions_[region.number] = *std::move(mapped);
  Queue({.prologue = {.kind = DataPrologue::kMapped, .position = region.number}});
  return absl::OkStatus();
}

absl::Status DataStream::HasMapped(uint64_t region) {
  MutexLock lock(mutex_);
  const auto told = told_.find(region);
  if (told == told_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: region ", region, " confirmed, which was not announced"));
  }
  told->second = true;
  return absl::OkStatus();
}

absl::Status DataStream::TakeBack(uint64_t count) {
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

void DataStream::TakeCreditLimit(uint64_t bytes) {
  MutexLock lock(mutex_);
  credit_limit_.Set(bytes);
  if (blocked_ != Blocked::kByCreditLimit || FrontWaits()) return;
  blocked_ = Blocked::kNot;
  if (receiving_ == Receiving::kCaller) Wake();  // otherwise this is the stream's thread
}

void DataStream::SendReleased() {
  if (to_release_ == 0) return;
  Queue({.prologue = {.kind = DataPrologue::kReleased, .position = std::exchange(to_release_, 0)}});
}

}  // namespace cairn::net
