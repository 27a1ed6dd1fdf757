// DataStream::ReceiveUntil(): a client's thread that receives messages itself.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/net/data_channel/stream/stream.h"
#include "common/system/thread.h"
#include "gtest/gtest.h"
#include "tests/support/gate.h"
#include "tests/unit/net/data_channel/stream/data_ends.h"

namespace cairn::net {
namespace {

// The client's stream thread has found nothing to receive, so a caller may receive in its place.
class ReceivingCallerTest : public DataStreamTest {
 protected:
  void StartIdle() {
    Start();
    while (!client_->ReceiveUntil([] { return true; }, InAMinute())) std::this_thread::yield();
  }
  // Receives until the client has `count` messages. Calls `first` once this thread receives in place of the
  // stream's thread.
  bool ReceiveUntil(size_t count, std::function<void()> first = nullptr) {
    return client_->ReceiveUntil(
        [&] {
          if (auto now = std::exchange(first, nullptr)) now();
          return at_client_.messages() >= count;
        },
        InAMinute());
  }
  static std::chrono::steady_clock::time_point InAMinute() {
    return std::chrono::steady_clock::now() + std::chrono::minutes(1);
  }
};
INSTANTIATE_TEST_SUITE_P(Over, ReceivingCallerTest, kAllWays, NameOf);

TEST_P(ReceivingCallerTest, ReceivesItsAnswersInItsThreadAndTheStreamReceivesTheRest) {
  StartIdle();
  const auto payload = Numbers(static_cast<size_t>(DataStream::kFragmentFloats), 1);
  const absl::Span<const float> run = *payload;
  Thread server("server", [&] {
    ASSERT_EQ(at_server_.Await(1).size(), 1u);
    server_->Send("values", {&run, 1}, payload);
    server_->Send("done", {}, nullptr);
    ASSERT_EQ(at_server_.Await(2).size(), 2u);
    server_->Send(std::string("later"), {&run, 1}, payload);
  });
  EXPECT_TRUE(ReceiveUntil(2, [&] { client_->Send("request", {}, nullptr); }));
  EXPECT_EQ(at_client_.by(), std::vector<std::thread::id>(2, std::this_thread::get_id()));
  client_->Send("another", {}, nullptr);
  const auto got = at_client_.Await(3);
  ASSERT_EQ(got.size(), 3u);
  EXPECT_TRUE(got[0].second == TextOf(*payload));
  EXPECT_EQ(got[2].first, "later");
  EXPECT_NE(at_client_.by()[2], std::this_thread::get_id());
}

TEST_P(ReceivingCallerTest, TheStreamsThreadHandlesWhatACallerLeavesUnread) {
  StartIdle();
  EXPECT_TRUE(ReceiveUntil(1, [&] {
    for (int i = 0; i < 100; ++i) server_->Send("message", {}, nullptr);
  }));
  EXPECT_EQ(at_client_.Await(100).size(), 100u);
}

TEST_P(ReceivingCallerTest, SendsWhileItReceives) {
  StartIdle();
  const auto payload = Numbers(static_cast<size_t>(DataStream::kFragmentFloats), 1);
  const absl::Span<const float> run = *payload;
  constexpr size_t kMessages = 40;  // more than sockets and rings hold
  Thread server("server", [&] {
    EXPECT_EQ(at_server_.Await(kMessages).size(), kMessages);
    for (size_t i = 0; i < kMessages; ++i) server_->Send("down", {&run, 1}, payload);
  });
  for (size_t i = 0; i < kMessages; ++i) client_->Send("up", {&run, 1}, payload);
  while (at_client_.messages() < kMessages && !at_client_.ended()) {
    if (!ReceiveUntil(kMessages)) std::this_thread::yield();
  }
  const auto got = at_client_.Await(kMessages);
  ASSERT_EQ(got.size(), kMessages);
  for (const auto& message : got) EXPECT_TRUE(message.second == TextOf(*payload));
}

TEST_P(ReceivingCallerTest, ReturnsWhenNudgedOrAtTheDeadline) {
  StartIdle();
  test::Gate asked;
  Thread other("other", [&] {
    EXPECT_TRUE(asked.Wait());
    client_->Nudge();
  });
  const auto deadline = InAMinute();
  EXPECT_TRUE(ReceiveUntil(1, [&] { asked.Open(); }));
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_TRUE(client_->ReceiveUntil([] { return false; },
                                    std::chrono::steady_clock::now() + std::chrono::milliseconds(5)));
  server_->Send("message", {}, nullptr);
  EXPECT_EQ(at_client_.Await(1).size(), 1u);
}

TEST_P(ReceivingCallerTest, ReturnsWhenNudgedEvenIfAMessageArrivesAtTheSameTime) {
  StartIdle();
  int asked = 0;
  EXPECT_TRUE(client_->ReceiveUntil(
      [&] {
        if (++asked > 1) return true;
        server_->Send("message", {}, nullptr);
        client_->Nudge();
        return false;
      },
      InAMinute()));
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(at_client_.Await(1).size(), 1u);
}

TEST_P(ReceivingCallerTest, OnlyOneCallerReceivesAtATime) {
  StartIdle();
  EXPECT_TRUE(client_->ReceiveUntil(
      [&] {
        EXPECT_FALSE(ReceiveUntil(1));
        return true;
      },
      InAMinute()));
}

TEST_P(ReceivingCallerTest, ReturnsFalseWhenTheOtherEndCloses) {
  StartIdle();
  Thread server("server", [&] {
    ASSERT_EQ(at_server_.Await(1).size(), 1u);
    server_->Close();
  });
  EXPECT_FALSE(ReceiveUntil(1, [&] { client_->Send("request", {}, nullptr); }));
  EXPECT_EQ(at_client_.AwaitEnd().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(ReceiveUntil(1));
}

TEST_P(ReceivingCallerTest, ReportsTheStatusOfTheOtherEnd) {
  StartIdle();
  at_server_.AnswerWith(absl::InvalidArgumentError("request 3 begins twice"));
  EXPECT_FALSE(ReceiveUntil(1, [&] { client_->Send("request", {}, nullptr); }));
  EXPECT_EQ(at_client_.AwaitEnd(), absl::InvalidArgumentError("request 3 begins twice"));
}

TEST_P(ReceivingCallerTest, ReturnsWhenTheStreamIsAborted) {
  StartIdle();
  test::Gate asked;
  Thread other("other", [&] {
    EXPECT_TRUE(asked.Wait());
    client_->Abort();
  });
  EXPECT_FALSE(ReceiveUntil(1, [&] { asked.Open(); }));
  EXPECT_EQ(at_client_.AwaitEnd().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace cairn::net
