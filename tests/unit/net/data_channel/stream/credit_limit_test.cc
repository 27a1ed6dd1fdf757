#include "common/net/data_channel/stream/credit_limit.h"

#include <chrono>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/net/data_channel/stream/stream.h"
#include "gtest/gtest.h"
#include "tests/support/data_sockets.h"
#include "tests/unit/net/data_channel/stream/data_ends.h"

namespace cairn::net {
namespace {

using std::chrono::milliseconds;

class CreditLimitTest : public testing::Test {
 protected:
  // Sends a payload of `bytes`, if the credit allows it.
  bool Sends(uint64_t bytes) {
    if (credit_limit_.WaitsUntil(now_).has_value()) return false;
    credit_limit_.Add(bytes);
    return true;
  }
  CreditLimit credit_limit_;
  CreditLimit::TimePoint now_{std::chrono::hours(1)};
};

TEST_F(CreditLimitTest, WithoutAGrantThereIsNoLimit) {
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Sends(uint64_t{1} << 40));
}

TEST_F(CreditLimitTest, APayloadIsSentWhileCreditIsLeft) {
  credit_limit_.Set(150);
  EXPECT_TRUE(Sends(100));
  EXPECT_TRUE(Sends(100));
  EXPECT_FALSE(Sends(100));
  credit_limit_.Set(200);
  EXPECT_FALSE(Sends(100)) << "200 bytes have been sent";
  credit_limit_.Set(201);
  EXPECT_TRUE(Sends(100));
  credit_limit_.Set(CreditLimit::kNoLimit);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Sends(100));
}

TEST_F(CreditLimitTest, ALowerGrantIsOutdated) {
  credit_limit_.Set(150);
  credit_limit_.Set(50);
  EXPECT_TRUE(Sends(100));
  EXPECT_TRUE(Sends(100));
  credit_limit_.Set(CreditLimit::kNoLimit);
  credit_limit_.Set(300);  // of the next push
  EXPECT_TRUE(Sends(100));
  EXPECT_FALSE(Sends(100));
}

TEST_F(CreditLimitTest, SendsWithoutCreditAfterWaiting) {
  credit_limit_.Set(100);
  EXPECT_TRUE(Sends(100));
  EXPECT_EQ(credit_limit_.WaitsUntil(now_), now_ + CreditLimit::kPatience);
  now_ += CreditLimit::kPatience - milliseconds(1);
  EXPECT_FALSE(Sends(100));
  now_ += milliseconds(1);
  EXPECT_TRUE(Sends(100));
  EXPECT_TRUE(Sends(100));
  credit_limit_.Set(250);
  EXPECT_TRUE(Sends(100)) << "the grant came too late";
  credit_limit_.Set(500);
  EXPECT_TRUE(Sends(100));
  EXPECT_FALSE(Sends(100));
}

TEST_F(CreditLimitTest, EachHigherGrantStartsTheWaitAgain) {
  credit_limit_.Set(100);
  EXPECT_TRUE(Sends(500));
  for (uint64_t allowed = 200; allowed <= 500; allowed += 100) {
    EXPECT_FALSE(Sends(100));
    now_ += CreditLimit::kPatience - milliseconds(1);
    credit_limit_.Set(allowed);
  }
  EXPECT_FALSE(Sends(100));
  now_ += CreditLimit::kPatience - milliseconds(1);
  credit_limit_.Set(500);  // no increase
  now_ += milliseconds(1);
  EXPECT_TRUE(Sends(100));
}

// The two ends have different addresses, so flow control applies.
class CreditLimitStreamTest : public testing::Test {
 protected:
  CreditLimitStreamTest() {
    auto [one, other] = test::TcpPair("127.0.0.2");
    server_ = DataStream::Accept(std::move(other), false, {.incarnation = kIncarnation}, at_server_).value();
    EXPECT_TRUE(server_->Start().ok());
    client_ = DataStream::Connect(std::move(one), false, {.incarnation = kIncarnation}, at_client_).value();
    EXPECT_TRUE(client_->Start().ok());
  }
  // Grants credit, and waits until the client has received the grant.
  void Allow(uint64_t bytes) {
    server_->Allow(bytes);
    server_->Send("and", {}, nullptr);
    at_client_.Await(++told_);
  }
  void SendValues() {
    const absl::Span<const float> run = *piece_;
    client_->Send("piece", {&run, 1}, piece_);
  }
  static constexpr uint64_t kFragmentBytes = sizeof(float) * DataStream::kFragmentFloats;
  const std::shared_ptr<const std::vector<float>> piece_ =
      Numbers(static_cast<size_t>(DataStream::kFragmentFloats), 1);
  Receiver at_server_, at_client_;  // outlive the streams
  std::unique_ptr<DataStream> server_, client_;
  size_t told_ = 0;
};

TEST_F(CreditLimitStreamTest, APayloadBeyondTheCreditIsSentAfterAWhile) {
  SendValues();
  at_server_.Await(1);
  Allow(1);  // plus what a round trip adds, which is much less than these payloads
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 16; ++i) SendValues();
  ASSERT_EQ(at_server_.Await(17).size(), 17u);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, CreditLimit::kPatience);
}

// Here and in the tests below, at least one of many tries ends before kPatience has passed.
TEST_F(CreditLimitStreamTest, SmallMessagesDoNotWait) {
  const auto numbers = Numbers(100, 1);
  const absl::Span<const float> run = *numbers;
  bool at_once = false;
  for (size_t sent = 0; sent < 4000 && !at_once; sent += 101) {
    Allow(1);
    SendValues();  // uses up the credit
    at_server_.Await(sent + 1);
    const auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i) client_->Send("small", {&run, 1}, numbers);
    ASSERT_EQ(at_server_.Await(sent + 101).size(), sent + 101);
    at_once = std::chrono::steady_clock::now() - begun < CreditLimit::kPatience / 2;
  }
  EXPECT_TRUE(at_once);
}

TEST_F(CreditLimitStreamTest, MoreCreditResumesSendingAtOnce) {
  bool at_once = false;
  for (size_t sent = 0; sent < 200 && !at_once; sent += 2) {
    Allow(1);
    SendValues();
    SendValues();
    at_server_.Await(sent + 1);
    const bool waited = at_server_.messages() == sent + 1;
    const auto begun = std::chrono::steady_clock::now();
    server_->Allow(2 * kFragmentBytes);
    at_server_.Await(sent + 2);
    at_once = waited && std::chrono::steady_clock::now() - begun < CreditLimit::kPatience / 2;
  }
  EXPECT_TRUE(at_once);
}

// The confirmation that the other end's payload has been read overtakes a payload that waits for credit.
TEST_F(CreditLimitStreamTest, ConfirmationsOvertakePayloadsThatWaitForCredit) {
  bool overtook = false;
  for (size_t sent = 0; sent < 40 && !overtook; sent += 2) {
    Allow(1);
    SendValues();
    SendValues();
    at_server_.Await(sent + 1);
    const auto values = Numbers(static_cast<size_t>(DataStream::kFragmentFloats), 7);
    const absl::Span<const float> run = *values;
    server_->Send("values", {&run, 1}, values);
    at_client_.Await(++told_);
    ASSERT_TRUE(AwaitUses(values, 1));
    overtook = at_server_.messages() == sent + 1;
    at_server_.Await(sent + 2);
  }
  EXPECT_TRUE(overtook);
}

}  // namespace
}  // namespace cairn::net
