#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "common/net/local/socket.h"
#include "common/net/local/stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kIncarnation = 7;

// Keeps what comes, and may stand still.
class Receiver final : public LocalReceiver {
 public:
  absl::Status OnMessage(absl::Span<const char> header, Payload payload) override {
    std::string bytes(static_cast<size_t>(PayloadBytes(payload)), '\0');
    CopyPayload(payload, bytes.data());
    MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);  // the test opens it
    messages_.emplace_back(std::string(header.begin(), header.end()), std::move(bytes));
    changed_.NotifyAll();
    return answer_;
  }
  void OnEnd(const absl::Status& status) override {
    MutexLock lock(mutex_);
    end_ = status;
    changed_.NotifyAll();
  }

  void StandStill() {
    MutexLock lock(mutex_);
    open_ = false;
  }
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void AnswerWith(absl::Status answer) {
    MutexLock lock(mutex_);
    answer_ = std::move(answer);
  }
  // Empty when they have not come within a minute.
  std::vector<std::pair<std::string, std::string>> Await(size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    MutexLock lock(mutex_);
    while (messages_.size() < count && !end_.has_value() && changed_.WaitUntil(mutex_, deadline)) {
    }
    return messages_.size() < count ? std::vector<std::pair<std::string, std::string>>() : messages_;
  }
  // Likewise DEADLINE_EXCEEDED.
  absl::Status AwaitEnd() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    MutexLock lock(mutex_);
    while (!end_.has_value() && changed_.WaitUntil(mutex_, deadline)) {
    }
    return end_.value_or(absl::DeadlineExceededError("the stream has not ended"));
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Status answer_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, std::string>> messages_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

// Both ends of a stream; with and without shared memory.
class LocalStreamTest : public testing::TestWithParam<bool> {
 protected:
  void Start(LocalStream::Options server = {.incarnation = kIncarnation}) {
    auto [one, other] = SocketPair().value();
    server_ = LocalStream::Accept(std::move(one), true, server, at_server_).value();
    server_->Start();
    client_ =
        LocalStream::Connect(std::move(other), GetParam(), {.incarnation = kIncarnation}, at_client_).value();
    client_->Start();
  }
  // The client's end is this test itself, which says what it likes.
  FileDescriptor StartRaw() {
    auto [one, other] = SocketPair().value();
    server_ = LocalStream::Accept(std::move(one), true, {.incarnation = kIncarnation}, at_server_).value();
    server_->Start();
    return std::move(other);
  }

  Receiver at_server_, at_client_;  // outlive the streams
  std::unique_ptr<LocalStream> server_, client_;
};
INSTANTIATE_TEST_SUITE_P(Over, LocalStreamTest, testing::Bool(),
                         [](const auto& over) { return over.param ? "SharedMemory" : "Socket"; });

// Shared with the stream, which may still be leaving the system call that sent them when the other end has them all.
std::shared_ptr<const std::vector<float>> Numbers(size_t count, float first) {
  const auto numbers = std::make_shared<std::vector<float>>(count);
  for (size_t i = 0; i < count; ++i) (*numbers)[i] = first + static_cast<float>(i);
  return numbers;
}

std::string BytesOf(absl::Span<const float> floats) {
  return {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)};
}

TEST_P(LocalStreamTest, MessagesOfAllSizesArriveWholeAndInOrderBothWaysAtOnce) {
  Start();
  const size_t largest = static_cast<size_t>(LocalStream::kPieceFloats);
  const std::vector<size_t> sizes = {0,           1,       3, 4095,    4096, 4097,   5000,
                                     largest - 1, largest, 2, largest, 0,    largest};
  std::vector<std::shared_ptr<const std::vector<float>>> sent;
  for (size_t i = 0; i < sizes.size(); ++i) sent.push_back(Numbers(sizes[i], static_cast<float>(i)));
  for (size_t i = 0; i < sent.size(); ++i) {
    const std::string header = std::string(i * 700, 'h') + std::to_string(i);
    // In two runs, as variables that lie apart.
    const absl::Span<const float> all = *sent[i];
    const absl::Span<const float> runs[] = {all.subspan(0, all.size() / 3), all.subspan(all.size() / 3)};
    client_->Send(header, runs, sent[i]);
    server_->Send(header, runs, sent[i]);
  }
  for (Receiver* receiver : {&at_server_, &at_client_}) {
    const auto got = receiver->Await(sizes.size());
    ASSERT_EQ(got.size(), sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(got[i].first, std::string(i * 700, 'h') + std::to_string(i));
      EXPECT_TRUE(got[i].second == BytesOf(*sent[i])) << "payload " << i;
    }
  }
}

TEST_P(LocalStreamTest, AReaderThatStandsStillHoldsUpNobodyAndGetsAll) {
  Start();
  at_server_.StandStill();
  const auto payload = Numbers(static_cast<size_t>(LocalStream::kPieceFloats), 1);
  const absl::Span<const float> run = *payload;
  constexpr size_t kMessages = 40;  // more than sockets and rings take
  for (size_t i = 0; i < kMessages; ++i) client_->Send("up", {&run, 1}, payload);
  server_->Send("down", {&run, 1}, payload);  // by a thread that is held up itself: when it is not any more
  at_server_.Open();
  const auto got = at_server_.Await(kMessages);
  ASSERT_EQ(got.size(), kMessages);
  for (const auto& message : got) EXPECT_TRUE(message.second == BytesOf(*payload));
  EXPECT_EQ(at_client_.Await(1).size(), 1u);
}

TEST_P(LocalStreamTest, WithMoreAnswersQueuedThanItsLimitAServerTakesNoRequests) {
  Start({.incarnation = kIncarnation, .rest_above = 2});
  at_client_.StandStill();
  const auto payload = Numbers(static_cast<size_t>(LocalStream::kPieceFloats), 1);
  const absl::Span<const float> run = *payload;
  for (int i = 0; i < 12; ++i) server_->Send("answer", {&run, 1}, payload);
  ASSERT_EQ(at_server_.Await(0).size(), 0u);
  for (int i = 0; i < 12; ++i) client_->Send("request", {&run, 1}, payload);
  at_client_.Open();
  EXPECT_EQ(at_client_.Await(12).size(), 12u);
  EXPECT_EQ(at_server_.Await(12).size(), 12u);
}

TEST_P(LocalStreamTest, AnOwnerIsReleasedWhenItsPayloadHasGoneAndAtTheLatestAtTheEnd) {
  Start();
  at_client_.StandStill();
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(LocalStream::kPieceFloats), 1.0f);
  const absl::Span<const float> run = *owner;
  for (int i = 0; i < 80; ++i) server_->Send("answer", {&run, 1}, owner);
  EXPECT_GT(owner.use_count(), 1);
  at_client_.Open();
  server_->Close();
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_P(LocalStreamTest, AnEndThatClosesIsNoticedByTheOther) {
  Start();
  client_->Send("last", {}, nullptr);
  ASSERT_EQ(at_server_.Await(1).size(), 1u);
  client_->Close();
  EXPECT_EQ(at_client_.AwaitEnd().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(at_server_.AwaitEnd().code(), absl::StatusCode::kUnavailable);
}

TEST_P(LocalStreamTest, WhyAReceiverEndsTheStreamTheOtherEndIsTold) {
  Start();
  at_server_.AnswerWith(absl::InvalidArgumentError("request 3 begins twice"));
  client_->Send("request", {}, nullptr);
  EXPECT_EQ(at_client_.AwaitEnd(), absl::InvalidArgumentError("request 3 begins twice"));
}

TEST_P(LocalStreamTest, AGreetingForAnotherServerIsSentAway) {
  auto [one, other] = SocketPair().value();
  server_ = LocalStream::Accept(std::move(one), true, {.incarnation = kIncarnation}, at_server_).value();
  server_->Start();
  const auto connected =
      LocalStream::Connect(std::move(other), GetParam(), {.incarnation = kIncarnation + 1}, at_client_);
  EXPECT_EQ(connected.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(at_server_.AwaitEnd().code(), absl::StatusCode::kUnavailable);
}

TEST_P(LocalStreamTest, AnEndThatTakesNothingIsGivenUp) {
  auto [one, other] = SocketPair().value();
  server_ = LocalStream::Accept(std::move(one), true,
                                {.incarnation = kIncarnation, .stall_limit = std::chrono::milliseconds(10)},
                                at_server_)
                .value();
  server_->Start();
  const uint64_t greeting[] = {0x316e726961632d6c, kIncarnation, 0};
  ASSERT_EQ(send(other.get(), greeting, sizeof greeting, 0), static_cast<ssize_t>(sizeof greeting));
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(LocalStream::kPieceFloats), 1.0f);
  const absl::Span<const float> run = *owner;
  for (int i = 0; i < 8; ++i) server_->Send("answer", {&run, 1}, owner);
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("taken nothing"));
  server_->Close();
  EXPECT_EQ(owner.use_count(), 1);
}

struct RawPrologue {
  uint32_t kind, header_bytes, payload_bytes, unused;
  uint64_t position;
};

class HostileClientTest : public LocalStreamTest {
 protected:
  // Greets with shared memory, and says one prologue.
  absl::Status AfterSaying(const RawPrologue& prologue) {
    const FileDescriptor raw = StartRaw();
    const auto rings = SharedRings::Create(LocalStream::kRingBytes).value();
    const auto credit = SocketPair().value();
    const uint64_t greeting[] = {0x316e726961632d6c, kIncarnation, 1};
    const int passed[] = {rings->descriptor(), credit.second.get()};
    EXPECT_EQ(SendPassing(raw, {reinterpret_cast<const char*>(greeting), sizeof greeting}, passed),
              absl::OkStatus());
    EXPECT_EQ(send(raw.get(), &prologue, sizeof prologue, 0), static_cast<ssize_t>(sizeof prologue));
    return at_server_.AwaitEnd();
  }
};
INSTANTIATE_TEST_SUITE_P(Over, HostileClientTest, testing::Values(true));

TEST_P(HostileClientTest, AHeaderBeyondTheLimitEndsTheStream) {
  EXPECT_THAT(AfterSaying({0, 0x80000000, 0, 0, 0}).message(), HasSubstr("header of 2147483648 bytes"));
}
TEST_P(HostileClientTest, APayloadBeyondTheLimitEndsTheStream) {
  EXPECT_THAT(AfterSaying({0, 0, 0xffffffff, 0, 0}).message(), HasSubstr("payload of 4294967295 bytes"));
}
TEST_P(HostileClientTest, AnUnknownKindEndsTheStream) {
  EXPECT_THAT(AfterSaying({9, 0, 0, 0, 0}).message(), HasSubstr("kind 9"));
}
TEST_P(HostileClientTest, APlaceAcrossTheRingsEndEndsTheStream) {
  EXPECT_THAT(AfterSaying({1, 0, 1 << 18, 0, LocalStream::kRingBytes - 64}).message(),
              HasSubstr("not in the ring"));
}
TEST_P(HostileClientTest, APlaceFarAheadEndsTheStream) {
  EXPECT_THAT(AfterSaying({1, 0, 64, 0, ~uint64_t{0} - 63}).message(), HasSubstr("not in the ring"));
}
TEST_P(HostileClientTest, NoGreetingEndsTheStream) {
  const FileDescriptor raw = StartRaw();
  const std::string nonsense(24, 'x');
  ASSERT_EQ(send(raw.get(), nonsense.data(), nonsense.size(), 0), 24);
  EXPECT_EQ(at_server_.AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
}
TEST_P(HostileClientTest, ASocketInPlaceOfMemoryIsSentAway) {
  const FileDescriptor raw = StartRaw();
  const auto pair = SocketPair().value();
  const uint64_t greeting[] = {0x316e726961632d6c, kIncarnation, 1};
  const int passed[] = {pair.first.get(), pair.second.get()};
  ASSERT_EQ(SendPassing(raw, {reinterpret_cast<const char*>(greeting), sizeof greeting}, passed),
            absl::OkStatus());
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("not sealed"));
}

}  // namespace
}  // namespace cairn::net
