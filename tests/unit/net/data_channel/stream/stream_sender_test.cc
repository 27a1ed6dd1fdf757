#include "common/net/data_channel/stream/stream_sender.h"

#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/net/data_channel/socket/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

using ::testing::HasSubstr;

// Over a Unix socket whose other end the test reads.
class StreamSenderTest : public testing::Test {
 protected:
  void Begin(bool peer_borrows = false) {
    terms_.peer_borrows = peer_borrows;
    sender_.Begin(terms_, /*server=*/true);
  }
  void Send(const std::string& header, absl::Span<const float> payload,
            std::shared_ptr<const void> owner = nullptr) {
    sender_.Send(header, {&payload, 1}, std::move(owner), sender_.RouteOf({&payload, 1}), std::nullopt);
  }
  // The header of the next message that was sent; empty if there is none.
  std::string Next() {
    DataPrologue prologue;
    if (recv(ends_.second.get(), &prologue, sizeof prologue, MSG_DONTWAIT) != sizeof prologue) return "";
    std::string header(prologue.header_bytes, '\0');
    EXPECT_EQ(recv(ends_.second.get(), header.data(), header.size(), 0), static_cast<ssize_t>(header.size()));
    return header;
  }
  StreamSender::Outlook Outlook(std::chrono::milliseconds after = {}) {
    return sender_.LookAhead(std::chrono::steady_clock::now() + after).value();
  }

  std::pair<FileDescriptor, FileDescriptor> ends_ = SocketPair().value();
  StreamOptions options_{.rest_above = 1, .stall_limit = std::chrono::seconds(60), .pins = false};
  EventFd wake_;
  StreamTerms terms_;
  StreamSender sender_{ends_.first, options_, wake_};
  const std::vector<float> large_ = std::vector<float>(static_cast<size_t>(kFragmentFloats));
};

TEST_F(StreamSenderTest, MessagesWaitForTheHandshake) {
  Send("early", {});
  EXPECT_EQ(Next(), "");
  Begin();
  EXPECT_EQ(sender_.Pump(1), absl::OkStatus());
  EXPECT_EQ(Next(), "early");
}

TEST_F(StreamSenderTest, TheCallingThreadSendsSmallMessagesAndLeavesLargeOnesToTheStreamsThread) {
  Begin();
  Send("small", {});
  EXPECT_EQ(Next(), "small");
  Send("large", large_);
  Send("behind", {});
  EXPECT_EQ(Next(), "");
  EXPECT_EQ(Outlook().timeout_ms, 0);
  EXPECT_EQ(sender_.Pump(1), absl::OkStatus());
  EXPECT_EQ(Next(), "large");
}

TEST_F(StreamSenderTest, AQueueAboveTheLimitMeansRestUntilItIsSent) {
  Send("one", {});
  EXPECT_FALSE(sender_.MustRest());
  Send("two", {});
  EXPECT_TRUE(sender_.MustRest());
  EXPECT_TRUE(Outlook().rests);
  Begin();
  EXPECT_EQ(sender_.Pump(4), absl::OkStatus());
  EXPECT_FALSE(sender_.MustRest());
}

TEST_F(StreamSenderTest, BorrowedPayloadsAreKeptUntilTheOtherEndHasReadThem) {
  Begin(/*peer_borrows=*/true);
  const auto owner = std::make_shared<int>(0);
  Send("borrowed", large_, owner);
  EXPECT_EQ(owner.use_count(), 2);
  EXPECT_TRUE(sender_.AnyBorrowed());
  EXPECT_THAT(sender_.TakeBack(2).message(), HasSubstr("2 payloads confirmed, but only 1 are outstanding"));
  EXPECT_EQ(sender_.TakeBack(1), absl::OkStatus());
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_F(StreamSenderTest, ACopiedPayloadIsReleasedWhenItHasBeenSent) {
  Begin();
  const auto owner = std::make_shared<int>(0);
  Send("copied", std::vector<float>(10), owner);
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_F(StreamSenderTest, APeerThatTakesNothingEndsTheStreamAfterTheStallLimit) {
  Begin(/*peer_borrows=*/true);
  Send("borrowed", large_);
  (void)Outlook();  // notices the progress
  EXPECT_EQ(Outlook(std::chrono::seconds(59)).timeout_ms, 1000);
  EXPECT_THAT(
      sender_.LookAhead(std::chrono::steady_clock::now() + std::chrono::seconds(62)).status().message(),
      HasSubstr("received nothing for too long"));
}

TEST_F(StreamSenderTest, ALargePayloadWaitsForCreditThatConfirmationsDoNotNeed) {
  Begin();
  sender_.SetCreditLimit(0);
  Send("large", large_);
  EXPECT_EQ(sender_.Pump(1), absl::OkStatus());
  EXPECT_EQ(Outlook().blocked, Blocked::kByCreditLimit);
  EXPECT_GT(Outlook().timeout_ms, 0);
  sender_.SendControl(DataPrologue::kReleased, 1);
  DataPrologue confirmation;
  ASSERT_EQ(recv(ends_.second.get(), &confirmation, sizeof confirmation, MSG_DONTWAIT),
            static_cast<ssize_t>(sizeof confirmation));
  EXPECT_EQ(confirmation.kind, DataPrologue::kReleased);
  EXPECT_EQ(Next(), "");
  sender_.SetCreditLimit(1);
  EXPECT_EQ(Outlook().blocked, Blocked::kNot);
}

TEST_F(StreamSenderTest, TheErrorOfACallingThreadReachesTheStreamsThread) {
  Begin();
  ends_.second.Reset();
  Send("small", {});
  EXPECT_EQ(sender_.LookAhead(std::chrono::steady_clock::now()).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(StreamSenderTest, NothingIsQueuedAfterTheEnd) {
  Begin();
  const auto owner = std::make_shared<int>(0);
  Send("queued", large_, owner);
  sender_.Clear();
  Send("late", large_, owner);
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_TRUE(sender_.MustRest());
}

}  // namespace
}  // namespace cairn::net
