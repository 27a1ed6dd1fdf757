#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <vector>

#include "common/net/data_channel/listeners.h"
#include "common/net/data_channel/stream/wire.h"
#include "tests/support/data_sockets.h"

namespace cairn::net {
namespace {

constexpr auto kAtOnce = std::chrono::milliseconds(0);
constexpr auto kSoon = std::chrono::seconds(20);

class DataListenersTest : public testing::Test {
 protected:
  FileDescriptor Connect() { return ConnectLocally(listeners_.address().local_socket).value(); }
  // Lets the listeners accept the connections that wait.
  void AcceptWaiting() {
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(listeners_.Accept(std::chrono::milliseconds(5)).has_value());
  }
  static void Send(const FileDescriptor& socket, absl::Span<const char> bytes) {
    ASSERT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static bool Closed(const FileDescriptor& socket) { return !CheckOtherEnd(socket.get()).ok(); }

  const DataHandshake handshake_ = {.incarnation = 7};
  DataListeners listeners_ = test::Listeners();
};

TEST_F(DataListenersTest, AConnectionIsReturnedOnceItsHandshakeIsComplete) {
  const FileDescriptor silent = Connect(), slow = Connect(), quick = Connect();
  Send(slow, BytesOf(handshake_).first(30));
  AcceptWaiting();
  Send(quick, BytesOf(handshake_));
  const auto first = listeners_.Accept(kSoon);
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(first->local);
  EXPECT_FALSE(listeners_.Accept(kAtOnce).has_value());
  Send(slow, BytesOf(handshake_).subspan(30));
  EXPECT_TRUE(listeners_.Accept(kSoon).has_value());
  EXPECT_FALSE(Closed(silent)) << "it still has time";
}

TEST_F(DataListenersTest, TheHandshakeIsLeftForTheStreamToRead) {
  const FileDescriptor client = Connect();
  Send(client, BytesOf(handshake_));
  const auto connection = listeners_.Accept(kSoon);
  ASSERT_TRUE(connection.has_value());
  char bytes[sizeof handshake_ + 1];
  EXPECT_EQ(recv(connection->socket.get(), bytes, sizeof bytes, MSG_DONTWAIT),
            static_cast<ssize_t>(sizeof handshake_));
}

TEST_F(DataListenersTest, AConnectionWithoutAHandshakeIsClosedAtOnce) {
  const FileDescriptor client = Connect();
  Send(client, {"GET / HTTP/1.1", 14});
  AcceptWaiting();
  EXPECT_TRUE(Closed(client));
}

TEST_F(DataListenersTest, TheOldestSilentConnectionIsClosedForANewOne) {
  std::vector<FileDescriptor> silent;
  for (size_t i = 0; i < DataListeners::kMaxPending; ++i) {
    silent.push_back(Connect());
    EXPECT_FALSE(listeners_.Accept(std::chrono::milliseconds(1)).has_value());
  }
  AcceptWaiting();
  EXPECT_FALSE(Closed(silent.front()));
  const FileDescriptor client = Connect();
  Send(client, BytesOf(handshake_));
  EXPECT_TRUE(listeners_.Accept(kSoon).has_value());
  EXPECT_TRUE(Closed(silent.front()));
  EXPECT_FALSE(Closed(silent.back()));
}

}  // namespace
}  // namespace cairn::net
