#include "common/net/data_channel/socket/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/data_sockets.h"

namespace cairn::net {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);

std::string CongestionControlOf(const FileDescriptor& socket) {
  char name[16] = {};
  socklen_t length = sizeof name;
  EXPECT_EQ(getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
  return name;
}

TEST(TcpSocket, ConnectionsWithinThisHostAreNotPaced) {
  const auto [client, server] = test::TcpPair();
  EXPECT_EQ(CongestionControlOf(client), "reno");
  EXPECT_EQ(CongestionControlOf(server), "reno");
}

TEST(TcpSocket, AListenerOnAllAddressesAcceptsIPv4) {
  for (const char* all : {"0.0.0.0", "::"}) {
    const TcpListener listener = ListenByTcp(all, 0).value();
    const FileDescriptor client = ConnectByTcp("127.0.0.1", listener.port, kLimit).value();
    const FileDescriptor server = AcceptByTcp(listener.socket);
    ASSERT_TRUE(server.valid());
    EXPECT_EQ(CongestionControlOf(client), "reno");
    EXPECT_EQ(CongestionControlOf(server), "reno")
        << "an IPv4-mapped address, at a listener for IPv4 and IPv6";
  }
}

TEST(TcpSocket, ConnectingWithoutAListenerIsRefused) {
  int port;
  {
    const TcpListener listener = ListenByTcp("127.0.0.1", 0).value();
    port = listener.port;
    EXPECT_FALSE(ListenByTcp("127.0.0.1", port).ok()) << "taken";
  }
  const absl::Status refused = ConnectByTcp("127.0.0.1", port, kLimit).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("refused"));
  EXPECT_FALSE(ListenByTcp("no.such.name.invalid", 0).ok());
}

}  // namespace
}  // namespace cairn::net
