#include "common/net/data_channel/socket/socket.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/system/limits.h"

namespace cairn::net {
namespace {

constexpr int kBacklog = 128;

socklen_t AddressOf(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof address->sun_path - 1);
  std::memcpy(address->sun_path + 1, name.data(), bytes);  // after a zero byte: an abstract name
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

// Sets the send buffer of a socket, as far as the system allows. With less room than a fragment needs, the
// two ends would wait for each other within each fragment.
void MakeRoom(const FileDescriptor& socket) {
  constexpr int kBytes = 512 << 10;
  (void)setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kBytes, sizeof kBytes);
}

FileDescriptor NewSocket() {
  FileDescriptor made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made.valid()) MakeRoom(made);
  return made;
}

}  // namespace

absl::Status SystemFailure(absl::string_view what) {
  const int reason = errno;
  return absl::UnavailableError(
      absl::StrCat(what, ": ", std::strerror(reason),
                   reason == EMFILE ? absl::StrCat(" (ulimit -n is ", DescriptorLimit(), ")") : ""));
}

absl::Status OtherEndClosed() {
  return absl::UnavailableError("the other end closed the stream");
}

absl::Status CheckOtherEnd(int socket) {
  pollfd ready = {.fd = socket, .events = POLLRDHUP, .revents = 0};
  return poll(&ready, 1, 0) > 0 ? OtherEndClosed() : absl::OkStatus();
}

absl::StatusOr<LocalListener> ListenLocally() {
  char random[16];
  if (getrandom(random, sizeof random, 0) != sizeof random) return SystemFailure("getrandom");
  LocalListener listener = {
      .name = absl::StrCat("cairn-", absl::BytesToHexString({random, sizeof random})),
      .socket = NewSocket(),
  };
  sockaddr_un address;
  const socklen_t length = AddressOf(listener.name, &address);
  if (!listener.socket.valid() ||
      bind(listener.socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener.socket.get(), kBacklog) != 0) {
    return SystemFailure("cannot listen on a Unix socket");
  }
  return listener;
}

absl::StatusOr<FileDescriptor> ConnectLocally(const std::string& name) {
  FileDescriptor made = NewSocket();
  sockaddr_un address;
  const socklen_t length = AddressOf(name, &address);
  if (!made.valid() || connect(made.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return SystemFailure("cannot connect to a Unix socket");
  }
  return made;
}

FileDescriptor AcceptLocally(const FileDescriptor& listener) {
  FileDescriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (accepted.valid()) MakeRoom(accepted);
  return accepted;
}

void Passed::Attach(absl::Span<const int> descriptors, msghdr& message) {
  CAIRN_CHECK(descriptors.size() <= kMaxPassed);
  if (descriptors.empty()) return;
  std::memset(control_, 0, sizeof control_);
  message.msg_control = control_;
  message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
  cmsghdr* const passing = CMSG_FIRSTHDR(&message);
  passing->cmsg_level = SOL_SOCKET;
  passing->cmsg_type = SCM_RIGHTS;
  passing->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
  std::memcpy(CMSG_DATA(passing), descriptors.data(), descriptors.size() * sizeof(int));
}

void Passed::MakeRoom(msghdr& message) {
  message.msg_control = control_;
  message.msg_controllen = sizeof control_;
}

bool Passed::Take(msghdr& message, std::vector<FileDescriptor>& passed) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof descriptor);
      passed.emplace_back(descriptor);
    }
  }
  return (message.msg_flags & MSG_CTRUNC) == 0;
}

absl::Status SendPassing(const FileDescriptor& socket, absl::Span<const char> bytes,
                         absl::Span<const int> descriptors) {
  iovec run = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &run;
  message.msg_iovlen = 1;
  Passed passed;
  passed.Attach(descriptors, message);
  const ssize_t sent = sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(bytes.size()) ? absl::OkStatus() : SystemFailure("sending");
}

absl::StatusOr<std::vector<FileDescriptor>> ReceivePassed(const FileDescriptor& socket,
                                                          absl::Span<char> bytes,
                                                          std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::vector<FileDescriptor> passed;
  while (!bytes.empty()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return absl::DeadlineExceededError("no handshake in time");
    pollfd ready = {.fd = socket.get(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, static_cast<int>(left.count())) <= 0) continue;
    iovec run = {bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &run;
    message.msg_iovlen = 1;
    Passed room;
    room.MakeRoom(message);
    const ssize_t got = recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return SystemFailure("receiving");
    (void)Passed::Take(message, passed);  // the caller checks how many descriptors came
    if (got == 0) return absl::UnavailableError("the other end closed the connection");
    bytes.remove_prefix(static_cast<size_t>(got));
  }
  return passed;
}

absl::StatusOr<std::pair<FileDescriptor, FileDescriptor>> SocketPair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return SystemFailure("socketpair");
  }
  return std::pair(FileDescriptor(ends[0]), FileDescriptor(ends[1]));
}

}  // namespace cairn::net
