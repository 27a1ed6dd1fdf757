#include "common/net/data_channel/listeners.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "common/net/data_channel/stream/wire.h"
#include "common/net/security/seal.h"

namespace cairn::net {
namespace {

// The pause before the next accept() when no descriptor is free: some will be closed.
constexpr auto kPause = std::chrono::milliseconds(10);

}  // namespace

DataListeners::DataListeners(LocalListener local, TcpListener tcp)
    : local_(std::move(local)), tcp_(std::move(tcp)), key_(DrawSecret(kDataKeyBytes)) {}

std::optional<DataListeners::Connection> DataListeners::Accept(std::chrono::milliseconds limit) {
  const TimePoint deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    if (auto greeted = TakeGreeted()) return greeted;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return std::nullopt;
    Wait(left);
  }
}

void DataListeners::Wait(std::chrono::milliseconds limit) {
  std::vector<pollfd> ready = {
      {.fd = local_.socket.get(), .events = POLLIN, .revents = 0},
      {.fd = tcp_.socket.get(), .events = POLLIN, .revents = 0}};  // poll() ignores -1
  // A partial handshake would end the wait at once, so sockets with a partial handshake are not polled.
  // TakeGreeted() checks them again after the wait.
  for (const Pending& one : pending_) {
    if (one.handshake == Handshake::kSilent) {
      ready.push_back({.fd = one.connection.socket.get(), .events = POLLIN, .revents = 0});
    }
  }
  if (poll(ready.data(), ready.size(), static_cast<int>(limit.count())) <= 0) return;
  if (ready[0].revents != 0) Admit(AcceptLocally(local_.socket), /*local=*/true);
  if (ready[1].revents != 0) Admit(AcceptByTcp(tcp_.socket), /*local=*/false);
}

void DataListeners::Admit(FileDescriptor accepted, bool local) {
  if (!reserve_.Admits(accepted.get())) {
    std::this_thread::sleep_for(kPause);
    return;
  }
  if (pending_.size() == kMaxPending) pending_.erase(pending_.begin());
  pending_.push_back({.connection = {.socket = std::move(accepted), .local = local, .key = key_},
                      .until = std::chrono::steady_clock::now() + kHandshakeLimit});
}

std::optional<DataListeners::Connection> DataListeners::TakeGreeted() {
  const TimePoint now = std::chrono::steady_clock::now();
  for (Pending& one : pending_) one.handshake = HandshakeOf(one.connection.socket);
  std::erase_if(pending_, [now](const Pending& one) {
    return one.handshake == Handshake::kNone || (one.handshake != Handshake::kWhole && one.until <= now);
  });
  const auto greeted = std::find_if(pending_.begin(), pending_.end(),
                                    [](const Pending& one) { return one.handshake == Handshake::kWhole; });
  if (greeted == pending_.end()) return std::nullopt;
  Connection connection = std::move(greeted->connection);
  pending_.erase(greeted);
  return connection;
}

DataListeners::Handshake DataListeners::HandshakeOf(const FileDescriptor& socket) {
  char bytes[sizeof(DataHandshake)];
  const ssize_t got = recv(socket.get(), bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Handshake::kSilent : Handshake::kNone;
  constexpr uint64_t kMagic = DataHandshake::kMagic;
  const auto count = static_cast<size_t>(got);
  if (count == 0 || std::memcmp(bytes, &kMagic, std::min(count, sizeof kMagic)) != 0) return Handshake::kNone;
  return count == sizeof bytes ? Handshake::kWhole : Handshake::kBegun;
}

void DataListeners::Close() {
  pending_.clear();
  local_.socket.Reset();
  tcp_.socket.Reset();
}

}  // namespace cairn::net
