// Accepts data channel connections: on a Unix socket for tasks of this host, on a TCP port for others.
//
// Accept() returns a connection once its handshake has arrived. Until then, the connection takes only a
// socket, no thread, and is closed after a time limit.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/core/clock.h"
#include "common/core/file_descriptor.h"
#include "common/net/data_channel/data_endpoint.h"
#include "common/net/data_channel/socket/descriptor_reserve.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/data_channel/socket/tcp_socket.h"

namespace cairn::net {

class DataListeners {
 public:
  struct Connection {
    FileDescriptor socket;
    bool local = false;  // whether it came from this host, over the Unix socket
    std::string key{};   // DataStream::Options::key for the accepting end
  };
  // The largest number of connections whose handshake is not complete (beyond it, the oldest connection is
  // closed), and the time limit of a handshake.
  static constexpr size_t kMaxPending = 64;
  static constexpr auto kHandshakeLimit = std::chrono::seconds(10);

  DataListeners() = default;  // accepts nothing
  // Draws the key with which clients must begin their streams.
  DataListeners(LocalListener local, TcpListener tcp);

  bool any() const { return local_.socket.valid() || tcp_.socket.valid(); }
  DataEndpoint address() const { return {.local_socket = local_.name, .port = tcp_.port, .key = key_}; }
  // Returns the next connection whose handshake can be read at once; nullopt if there is none within `limit`.
  // Closes connections that begin with anything but a handshake.
  std::optional<Connection> Accept(std::chrono::milliseconds limit);
  // Refuses new connections at once, and closes those that Accept() has not returned.
  void Close();

 private:
  enum class Handshake { kSilent, kBegun, kWhole, kNone };
  struct Pending {
    Connection connection;
    TimePoint until;
    Handshake handshake = Handshake::kSilent;
  };
  static Handshake HandshakeOf(const FileDescriptor& socket);

  // Waits until a client connects or sends, for at most `limit`.
  void Wait(std::chrono::milliseconds limit);
  void Admit(FileDescriptor accepted, bool local);
  std::optional<Connection> TakeGreeted();

  LocalListener local_;
  TcpListener tcp_;
  std::vector<Pending> pending_;  // the oldest first
  DescriptorReserve reserve_;
  std::string key_{};
};

}  // namespace cairn::net
