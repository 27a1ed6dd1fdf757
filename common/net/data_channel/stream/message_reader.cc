#include "common/net/data_channel/stream/message_reader.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/wire/frame.h"

namespace cairn::net {

absl::StatusOr<bool> MessageReader::ReceiveInto(char* to, size_t count, size_t* got) {
  for (;;) {
    iovec run = {to, count};
    msghdr message{};
    message.msg_iov = &run;
    message.msg_iovlen = 1;
    Passed room;
    if (receives_descriptors_) room.MakeRoom(message);
    const ssize_t received = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      unread_ = false;
      return false;
    }
    if (received < 0) return SystemFailure("receiving");
    if (receives_descriptors_) passed_all_ = Passed::Take(message, passed_) && passed_all_;
    if (!passed_all_) passed_.clear();
    if (received == 0) return OtherEndClosed();
    if (passed_.size() > kMaxRegions)
      return absl::InvalidArgumentError("frame: more descriptors than regions");
    *got += static_cast<size_t>(received);
    return true;
  }
}

absl::StatusOr<std::optional<IncomingMessage>> MessageReader::Front() {
  for (;;) {
    // The number of bytes that must have arrived: first the prologue, then also the header and the runs.
    DataPrologue prologue;
    size_t needed = sizeof prologue;
    if (end_ - begin_ >= needed) {
      std::memcpy(&prologue, in_.data() + begin_, sizeof prologue);
      if (prologue.header_bytes > kMaxHeaderBytes) {
        return absl::InvalidArgumentError(
            absl::StrCat("frame: invalid header of ", prologue.header_bytes, " bytes"));
      }
      if (prologue.runs > kMaxBorrowedRuns) {
        return absl::InvalidArgumentError(absl::StrCat("frame: invalid payload of ", prologue.runs, " runs"));
      }
      needed += prologue.header_bytes + prologue.runs * sizeof(BorrowedRun);
      if (end_ - begin_ >= needed) {
        // The size of a payload; the code of a status.
        if (prologue.kind != DataPrologue::kFarewell && prologue.payload_bytes > kMaxPayloadBytes) {
          return absl::InvalidArgumentError(
              absl::StrCat("frame: invalid payload of ", prologue.payload_bytes, " bytes"));
        }
        front_bytes_ = needed;
        const absl::Span<const char> front(in_.data() + begin_ + sizeof prologue, needed - sizeof prologue);
        return IncomingMessage{.prologue = prologue,
                               .header = front.first(prologue.header_bytes),
                               .runs = front.subspan(prologue.header_bytes)};
      }
    }
    std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
    if (in_.size() < needed) in_.resize(needed);
    CAIRN_ASSIGN_OR_RETURN(const bool more, ReceiveInto(in_.data() + end_, in_.size() - end_, &end_));
    if (!more) return std::nullopt;
  }
}

// The front message stays in in_ until its payload is complete. The bytes behind it are the beginning of the
// payload.
absl::StatusOr<bool> MessageReader::ReceivePayload(absl::Span<char> to) {
  char* const behind = in_.data() + begin_ + front_bytes_;
  const size_t ahead = end_ - begin_ - front_bytes_;
  if (const size_t here = std::min(ahead, to.size() - payload_got_); here > 0) {
    std::memcpy(to.data() + payload_got_, behind, here);
    std::memmove(behind, behind + here, ahead - here);
    end_ -= here;
    payload_got_ += here;
  }
  while (payload_got_ < to.size()) {
    CAIRN_ASSIGN_OR_RETURN(const bool more,
                           ReceiveInto(to.data() + payload_got_, to.size() - payload_got_, &payload_got_));
    if (!more) return false;
  }
  return true;
}

void MessageReader::Pop() {
  begin_ += std::exchange(front_bytes_, 0);
  payload_got_ = 0;
}

absl::Span<char> MessageReader::Room(size_t bytes) {
  room_.resize(std::max(room_.size(), bytes));
  return absl::MakeSpan(room_).first(bytes);
}

FileDescriptor MessageReader::TakeDescriptor() {
  if (passed_.empty()) return {};
  FileDescriptor first = std::move(passed_.front());
  passed_.erase(passed_.begin());
  return first;
}

}  // namespace cairn::net
