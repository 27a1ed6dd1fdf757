#include "common/net/data_channel/stream/farewell.h"

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/data_channel/socket/tcp_socket.h"
#include "common/net/data_channel/stream/wire.h"

namespace cairn::net {
namespace {

// Time for the other end to read why the stream ends and to close its socket, and for its kernel to learn
// that the connection has ended.
constexpr auto kLinger = std::chrono::seconds(1);
constexpr size_t kMaxText = 4096;

// TCP discards the final status if the socket is closed while received data is unread.
void Linger(const FileDescriptor& socket, const EventFd& wake, const std::atomic<bool>& closing) {
  if (!IsTcp(socket)) return;
  shutdown(socket.get(), SHUT_WR);
  const auto deadline = std::chrono::steady_clock::now() + kLinger;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready[2] = {{socket.get(), POLLIN, 0}, {wake.descriptor().get(), POLLIN, 0}};
    if (left.count() <= 0 || poll(ready, 2, static_cast<int>(left.count())) < 0 || closing) return;
    if (ready[1].revents != 0) wake.Clear();
    char drained[4096];
    if (ready[0].revents != 0 && recv(socket.get(), drained, sizeof drained, MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace

void SendFarewell(const FileDescriptor& socket, const absl::Status& why, const EventFd& wake,
                  const std::atomic<bool>& closing) {
  const absl::string_view text = why.message().substr(0, kMaxText);
  const DataPrologue prologue = {.kind = DataPrologue::kFarewell,
                                 .header_bytes = static_cast<uint32_t>(text.size()),
                                 .payload_bytes = static_cast<uint32_t>(why.code())};
  std::string message(BytesOf(prologue).data(), sizeof prologue);
  absl::StrAppend(&message, text);
  (void)SendPassing(socket, message, {});
  Linger(socket, wake, closing);
}

// The other end of a Unix socket notices the end at once; the other end of a TCP socket must be notified.
void ShutDown(const FileDescriptor& socket, bool borrowed) {
  shutdown(socket.get(), SHUT_RDWR);
  if (borrowed && IsTcp(socket)) EndTcp(socket, kLinger);
}

}  // namespace cairn::net
