#include "common/net/server/grpc_port.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/core/log.h"

namespace cairn::net {
namespace {

using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
constexpr auto kFromDescriptor = grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD;

// The pause after a connection that could not be accepted, during which other connections may be closed.
constexpr auto kPause = std::chrono::milliseconds(10);

// "[::1]:2222" -> "::1" and 2222. Returns false for text of another form.
bool SplitAddress(absl::string_view address, std::string* host, int* port) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || absl::StartsWith(address, "unix:") ||
      !absl::SimpleAtoi(address.substr(colon + 1), port) || *port < 0 || *port > 65535) {
    return false;
  }
  absl::string_view name = address.substr(0, colon);
  if (absl::ConsumePrefix(&name, "[") && !absl::ConsumeSuffix(&name, "]")) return false;
  *host = std::string(name);
  return !host->empty();
}

// Sets the options that a gRPC listener with our keepalive settings (grpc_util) sets on its connections.
// Without TCP_NODELAY, a small message waits up to 40 ms for the peer's delayed acknowledgement.
void SetOptions(int connection) {
  constexpr int kNoDelay = 1;
  constexpr int kUserTimeoutMs = 10'000;
  // A connection that refuses an option still works.
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &kNoDelay, sizeof kNoDelay);
  setsockopt(connection, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof kUserTimeoutMs);
}

}  // namespace

GrpcPort::GrpcPort(grpc::ServerBuilder& builder, const std::string& address,
                   std::shared_ptr<grpc::ServerCredentials> credentials, bool reuse_port, int* port) {
  std::string host;
  int wanted = 0;
  if (!SplitAddress(address, &host, &wanted)) {
    builder.AddListeningPort(address, std::move(credentials), port);
    return;
  }
  auto listeners = ListenByTcpOnAll(host, wanted, reuse_port);
  if (!listeners.ok()) {
    LogWarning("cannot listen on ", address, ": ", listeners.status().message());
    return;
  }
  listeners_ = *std::move(listeners);
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(kFromDescriptor, std::move(credentials));
  *port = listeners_.front().port;
}

GrpcPort::~GrpcPort() {
  Close();
}

void GrpcPort::Open() {
  if (!listeners_.empty()) thread_ = Thread("grpc-accept", [this] { Run(); });
}

void GrpcPort::Close() {
  closing_ = true;
  thread_.Join();
  listeners_.clear();
}

void GrpcPort::Run() {
  std::vector<pollfd> ready;
  for (const TcpListener& listener : listeners_) {
    ready.push_back({.fd = listener.socket.get(), .events = POLLIN, .revents = 0});
  }
  auto look_after = guard_.Look();
  auto next_look = std::chrono::steady_clock::now() + look_after;
  while (!closing_) {
    const int some = poll(ready.data(), ready.size(), static_cast<int>(look_after.count()));
    if (const auto now = std::chrono::steady_clock::now(); now >= next_look) {
      look_after = guard_.Look();
      next_look = now + look_after;
    }
    if (some <= 0) continue;
    for (size_t i = 0; i < ready.size(); ++i) {
      if (ready[i].revents != 0) AcceptFrom(listeners_[i]);
    }
  }
}

void GrpcPort::AcceptFrom(const TcpListener& listener) {
  const int connection = accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (!reserve_.Admits(connection)) {
    if (connection >= 0) close(connection);
    std::this_thread::sleep_for(kPause);
    return;
  }
  SetOptions(connection);
  Acceptor::NewConnectionParameters accepted;
  accepted.listener_fd = listener.socket.get();
  accepted.fd = connection;
  guard_.Add(connection);
  acceptor_->HandleNewConnection(&accepted);
}

}  // namespace cairn::net
