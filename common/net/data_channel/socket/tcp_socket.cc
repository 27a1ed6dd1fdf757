#include "common/net/data_channel/socket/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/net/data_channel/socket/socket.h"

namespace cairn::net {
namespace {

constexpr int kTcpBacklog = 512;
// TCP keepalive: the silence before the first probe, the interval between probes, and their number.
constexpr int kLookAfterSeconds = 5, kLookEverySeconds = 5, kLooks = 2;
// The limit for unacknowledged data.
constexpr int kUnacknowledgedMs = (kLookAfterSeconds + kLookEverySeconds * kLooks) * 1000;
// The limit of bytes that wait in the kernel to be sent. Messages that are not in the kernel yet can still be
// reordered.
constexpr int kUnsentBytes = 512 << 10;

void Set(const FileDescriptor& socket, int level, int option, int value) {
  (void)setsockopt(socket.get(), level, option, &value, sizeof value);  // a failure only makes things slower
}

void Tune(const FileDescriptor& socket) {
  Set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  Set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMs);
  Set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kLookAfterSeconds);
  Set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kLookEverySeconds);
  Set(socket, IPPROTO_TCP, TCP_KEEPCNT, kLooks);
  Set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
}

// The IP address in `of`; an IPv4-mapped IPv6 address stays IPv6.
absl::string_view IpIn(const sockaddr_storage& of) {
  if (of.ss_family == AF_INET6) {
    const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(of).sin6_addr;
    return {reinterpret_cast<const char*>(&address), sizeof address};
  }
  const in_addr& address = reinterpret_cast<const sockaddr_in&>(of).sin_addr;
  return {reinterpret_cast<const char*>(&address), sizeof address};
}

// Data that stays on this host meets no congestion, so BBR, which measures and paces, would only cost time.
void TuneConnected(const FileDescriptor& socket) {
  if (!StaysOnHost(socket)) return;
  constexpr absl::string_view kReno = "reno";  // every kernel has it, and allows it to every user
  (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
}

constexpr auto kLookEvery = std::chrono::milliseconds(1);

// True if the other end's kernel has received all data and the end of the connection, or if there is no
// connection any more.
bool EndIsKnown(const FileDescriptor& socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return true;
  return info.tcpi_state == TCP_FIN_WAIT2 || info.tcpi_state == TCP_TIME_WAIT || info.tcpi_state == TCP_CLOSE;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<Addresses> Resolve(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int fault = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found); fault != 0) {
    return absl::UnavailableError(absl::StrCat(host, ": ", gai_strerror(fault)));
  }
  return Addresses(found, freeaddrinfo);
}

FileDescriptor NewSocket(const addrinfo& address) {
  return FileDescriptor(
      socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
}

absl::StatusOr<TcpListener> Listen(const addrinfo& address, bool reuse_port) {
  TcpListener listener = {.socket = NewSocket(address)};
  if (!listener.socket.valid()) return SystemFailure("cannot create a TCP socket");
  Set(listener.socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (reuse_port) Set(listener.socket, SOL_SOCKET, SO_REUSEPORT, 1);
  if (address.ai_family == AF_INET6) Set(listener.socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (bind(listener.socket.get(), address.ai_addr, address.ai_addrlen) != 0 ||
      listen(listener.socket.get(), kTcpBacklog) != 0 ||
      getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return SystemFailure("cannot listen on a TCP socket");
  }
  listener.port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                                    : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  return listener;
}

bool IsAnyAddress(const std::string& host) {
  return host == "0.0.0.0" || host == "::";
}

std::vector<std::string> NamesToListenOn(const std::string& host) {
  return IsAnyAddress(host) ? std::vector<std::string>{"::", "0.0.0.0"} : std::vector{host};
}

void SetPort(sockaddr& address, int port) {
  const in_port_t wire = htons(static_cast<uint16_t>(port));
  if (address.sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = wire;
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = wire;
  }
}

absl::StatusOr<FileDescriptor> Connect(const addrinfo& address,
                                       std::chrono::steady_clock::time_point deadline) {
  FileDescriptor made = NewSocket(address);
  if (!made.valid()) return SystemFailure("cannot create a TCP socket");
  Tune(made);
  if (connect(made.get(), address.ai_addr, address.ai_addrlen) == 0) {
    TuneConnected(made);
    return made;
  }
  if (errno != EINPROGRESS) return SystemFailure("cannot connect");
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return absl::DeadlineExceededError("cannot connect: no answer in time");
    pollfd ready = {.fd = made.get(), .events = POLLOUT, .revents = 0};
    if (poll(&ready, 1, static_cast<int>(left.count())) > 0) break;
  }
  int fault = 0;
  socklen_t length = sizeof fault;
  if (getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &fault, &length) != 0)
    return SystemFailure("cannot connect");
  errno = fault;
  if (fault != 0) return SystemFailure("cannot connect");
  TuneConnected(made);
  return made;
}

}  // namespace

absl::StatusOr<TcpListener> ListenByTcp(const std::string& host, int port) {
  absl::Status failure = absl::UnavailableError("no address");
  for (const std::string& name : NamesToListenOn(host)) {
    const auto addresses = Resolve(name, port, AI_PASSIVE);
    if (!addresses.ok()) {
      failure = addresses.status();
      continue;
    }
    for (const addrinfo* address = addresses->get(); address != nullptr; address = address->ai_next) {
      auto listener = Listen(*address, /*reuse_port=*/false);
      if (listener.ok()) return listener;
      failure = listener.status();
    }
  }
  return failure;
}

absl::StatusOr<std::vector<TcpListener>> ListenByTcpOnAll(const std::string& host, int port,
                                                          bool reuse_port) {
  std::vector<TcpListener> listeners;
  absl::Status failure = absl::UnavailableError("no address");
  for (const std::string& name : NamesToListenOn(host)) {
    if (IsAnyAddress(host) && !listeners.empty()) break;  // "::" includes IPv4
    const auto addresses = Resolve(name, port, AI_PASSIVE);
    if (!addresses.ok()) {
      failure = addresses.status();
      continue;
    }
    for (addrinfo* address = addresses->get(); address != nullptr; address = address->ai_next) {
      if (!listeners.empty()) SetPort(*address->ai_addr, listeners.front().port);
      auto listener = Listen(*address, reuse_port);
      if (listener.ok()) {
        listeners.push_back(*std::move(listener));
      } else {
        failure = listener.status();
      }
    }
  }
  if (listeners.empty()) return failure;
  return listeners;
}

absl::StatusOr<FileDescriptor> ConnectByTcp(const std::string& host, int port,
                                            std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const auto addresses = Resolve(host, port, 0);
  if (!addresses.ok()) return addresses.status();
  absl::Status failure = absl::UnavailableError("no address");
  for (const addrinfo* address = addresses->get(); address != nullptr; address = address->ai_next) {
    auto made = Connect(*address, deadline);
    if (made.ok()) return made;
    failure = made.status();
  }
  return failure;
}

FileDescriptor AcceptByTcp(const FileDescriptor& listener) {
  FileDescriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (accepted.valid()) {
    Tune(accepted);
    TuneConnected(accepted);
  }
  return accepted;
}

bool IsTcp(const FileDescriptor& socket) {
  int domain = AF_UNIX;
  socklen_t length = sizeof domain;
  return getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain != AF_UNIX;
}

void EndTcp(const FileDescriptor& socket, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!EndIsKnown(socket)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      const sockaddr nobody = {.sa_family = AF_UNSPEC, .sa_data = {}};
      (void)connect(socket.get(), &nobody, sizeof nobody);
      return;
    }
    std::this_thread::sleep_for(kLookEvery);  // there is no event to wait for
  }
}

bool StaysOnHost(const FileDescriptor& socket) {
  sockaddr_storage ours{}, theirs{};
  socklen_t our_length = sizeof ours, their_length = sizeof theirs;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&ours), &our_length) != 0 ||
      getpeername(socket.get(), reinterpret_cast<sockaddr*>(&theirs), &their_length) != 0) {
    return false;
  }
  return ours.ss_family == AF_UNIX || (ours.ss_family == theirs.ss_family && IpIn(ours) == IpIn(theirs));
}

}  // namespace cairn::net
