#include "common/net/data_channel/stream/handshake.h"

#include <string>
#include <utility>

#include "common/net/data_channel/socket/socket.h"
#include "common/system/thread.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

class Shard final : public DataReceiver {
 public:
  absl::Status OnHandshake(const StreamTarget& target) override {
    asked = target;
    return answer;
  }
  absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char>, size_t) override {
    return absl::Span<char>();
  }
  absl::Status Complete(Payload) override { return absl::OkStatus(); }
  void OnEnd(const absl::Status&) override {}

  StreamTarget asked{.shard = -2};
  absl::Status answer;
};

class HandshakeTest : public testing::Test {
 protected:
  struct Terms {
    absl::StatusOr<StreamTerms> client, server;
  };
  Terms Shake(const StreamOptions& client, const StreamOptions& server, bool brings = true,
              bool accepts = true) {
    auto [one, other] = SocketPair().value();
    StreamHandshake at_server(one, accepts, server);
    StreamHandshake at_client(other, brings, client);
    Terms terms;
    Thread thread("server", [&] {
      terms.server = at_server.Answer(shard_);
      if (!terms.server.ok()) one.Reset();
    });
    terms.client = at_client.Request();
    thread.Join();
    return terms;
  }

  Shard shard_;
};

TEST_F(HandshakeTest, BothEndsShareRingsAndAgreeToMap) {
  const StreamOptions options = {
      .incarnation = 7, .target = {.shard = 3, .replicates = true}, .offers_memory = true};
  const Terms terms = Shake(options, options);
  ASSERT_EQ(terms.client.status(), absl::OkStatus());
  ASSERT_EQ(terms.server.status(), absl::OkStatus());
  for (const auto* end : {&terms.client, &terms.server}) {
    EXPECT_NE((*end)->rings, nullptr);
    EXPECT_TRUE((*end)->ring_wake.valid());
    EXPECT_TRUE((*end)->maps);
  }
  EXPECT_EQ(terms.client->peer_borrows, terms.server->peer != nullptr);
  EXPECT_EQ(shard_.asked, options.target);
}

TEST_F(HandshakeTest, AnEndThatOffersNoMemoryMapsNone) {
  const Terms terms = Shake({.incarnation = 7, .offers_memory = true}, {.incarnation = 7});
  ASSERT_EQ(terms.client.status(), absl::OkStatus());
  EXPECT_FALSE(terms.client->maps);
  EXPECT_FALSE(terms.client->peer_borrows);
  EXPECT_EQ(terms.server->peer, nullptr);
}

TEST_F(HandshakeTest, WithoutSharedMemoryThereAreNoRings) {
  const StreamOptions options = {.incarnation = 7, .offers_memory = true};
  const Terms terms = Shake(options, options, /*brings=*/false);
  ASSERT_EQ(terms.client.status(), absl::OkStatus());
  EXPECT_EQ(terms.client->rings, nullptr);
  EXPECT_EQ(terms.server->rings, nullptr);
  EXPECT_FALSE(terms.server->maps);
}

TEST_F(HandshakeTest, SharedMemoryThatTheServerDoesNotAcceptIsRefused) {
  const Terms terms = Shake({.incarnation = 7}, {.incarnation = 7}, /*brings=*/true, /*accepts=*/false);
  EXPECT_EQ(terms.server.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(terms.client.status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(HandshakeTest, OnlyAClientWithTheKeyIsAccepted) {
  const std::string key(kDataKeyBytes, 'k'), other(kDataKeyBytes, 'o');
  EXPECT_EQ(Shake({.incarnation = 7, .key = other}, {.incarnation = 7, .key = key}).server.status().code(),
            absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(Shake({.incarnation = 7, .key = key}, {.incarnation = 7, .key = key}).server.status(),
            absl::OkStatus());
}

TEST_F(HandshakeTest, AShardThatTheServerDoesNotServeIsRefused) {
  shard_.answer = absl::NotFoundError("no such shard");
  EXPECT_EQ(Shake({.incarnation = 7}, {.incarnation = 7}).server.status(), shard_.answer);
}

}  // namespace
}  // namespace cairn::net
