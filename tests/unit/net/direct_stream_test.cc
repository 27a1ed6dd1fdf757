#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/core/thread.h"
#include "common/net/direct/socket.h"
#include "common/net/direct/stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/direct_sockets.h"
#include "tests/support/gate.h"

namespace cairn::net {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kIncarnation = 7;

// Keeps what comes, and may stand still.
class Receiver final : public DirectReceiver {
 public:
  absl::Status OnMessage(absl::Span<const char> header, Payload payload) override {
    MutexLock lock(mutex_);
    ++begun_;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(mutex_);  // the test opens it
    std::string bytes(static_cast<size_t>(PayloadBytes(payload)), '\0');
    if (!place_.empty() && payload.lent() == nullptr && payload.runs().size() == 1 &&
        payload.runs()[0].data() == place_.data()) {
      ++in_place_;
    }
    CAIRN_RETURN_IF_ERROR(CopyPayload(payload, bytes.data()));
    if (payload.lent() != nullptr) ++lent_;
    messages_.emplace_back(std::string(header.begin(), header.end()), std::move(bytes));
    by_.push_back(std::this_thread::get_id());
    changed_.NotifyAll();
    return answer_;
  }
  void OnEnd(const absl::Status& status) override {
    MutexLock lock(mutex_);
    end_ = status;
    changed_.NotifyAll();
  }

  absl::Span<char> PlaceFor(absl::Span<const char>, size_t bytes) override {
    MutexLock lock(mutex_);
    return absl::MakeSpan(place_).first(std::min(bytes, place_.size()));
  }

  // What comes over the socket is to be put here where it has exactly the room that it needs, or more.
  void Offer(size_t bytes) {
    MutexLock lock(mutex_);
    place_.resize(bytes);
  }
  bool ended() const {
    MutexLock lock(mutex_);
    return end_.has_value();
  }
  int in_place() const {
    MutexLock lock(mutex_);
    return in_place_;
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
  // Until it has been given one, within a minute.
  bool AwaitBegun() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    MutexLock lock(mutex_);
    while (begun_ == 0 && changed_.WaitUntil(mutex_, deadline)) {
    }
    return begun_ > 0;
  }
  size_t messages() const {
    MutexLock lock(mutex_);
    return messages_.size();
  }
  // Whose thread brought each.
  std::vector<std::thread::id> by() const {
    MutexLock lock(mutex_);
    return by_;
  }
  int lent() const {
    MutexLock lock(mutex_);
    return lent_;
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
  mutable Mutex mutex_;
  CondVar changed_;
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int lent_ ABSL_GUARDED_BY(mutex_) = 0;
  int in_place_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<char> place_ ABSL_GUARDED_BY(mutex_);
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Status answer_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, std::string>> messages_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread::id> by_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

// Large payloads go over sockets by reference, but where a stream is told to copy them.
enum class Over { kTcp, kTcpCopying, kSocket, kSocketCopying, kRings, kLending };

// Some containers keep processes from reading any memory but through their own addresses.
bool MemoryCanBeRead() {
  static const uint64_t probe = 42;
  const auto pair = SocketPair().value();
  return PeerMemory::Open(pair.first.get(),
                          {.address = reinterpret_cast<uint64_t>(&probe), .value = probe}) != nullptr;
}

// Both ends of a stream.
class DirectStreamTest : public testing::TestWithParam<Over> {
 protected:
  void SetUp() override {
    if (GetParam() == Over::kLending && !MemoryCanBeRead())
      GTEST_SKIP() << "no memory can be lent on this machine";
  }
  bool shared() const { return GetParam() > Over::kSocketCopying; }
  static bool holds() { return GetParam() == Over::kTcp || GetParam() == Over::kSocket; }
  static bool lends() { return GetParam() == Over::kLending; }
  static std::pair<FileDescriptor, FileDescriptor> Pair() {
    return GetParam() <= Over::kTcpCopying ? test::TcpPair() : SocketPair().value();
  }
  void Start(DirectStream::Options server = {.incarnation = kIncarnation}) {
    auto [one, other] = Pair();
    server.lends = lends();
    server.holds = holds();
    server_ = DirectStream::Accept(std::move(one), true, server, at_server_).value();
    server_->Start();
    client_ =
        DirectStream::Connect(std::move(other), shared(),
                              {.incarnation = kIncarnation, .lends = lends(), .holds = holds()}, at_client_)
            .value();
    client_->Start();
  }
  // The client's end is this test itself, which says what it likes.
  FileDescriptor StartRaw(bool lends = false) {
    auto [one, other] = Pair();
    server_ =
        DirectStream::Accept(std::move(one), true, {.incarnation = kIncarnation, .lends = lends}, at_server_)
            .value();
    server_->Start();
    return std::move(other);
  }

  Receiver at_server_, at_client_;  // outlive the streams
  std::unique_ptr<DirectStream> server_, client_;
};
std::string NameOf(const testing::TestParamInfo<Over>& over) {
  constexpr const char* kNames[] = {"Tcp",           "TcpCopying",   "Socket",
                                    "SocketCopying", "SharedMemory", "Lending"};
  return kNames[static_cast<size_t>(over.param)];
}
const auto kAllWays = testing::Values(Over::kTcp, Over::kTcpCopying, Over::kSocket, Over::kSocketCopying,
                                      Over::kRings, Over::kLending);
INSTANTIATE_TEST_SUITE_P(Over, DirectStreamTest, kAllWays, NameOf);

// Whether so many share it, us included, within a minute.
template <typename T>
bool AwaitUses(const std::shared_ptr<T>& owner, long count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (owner.use_count() != count && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return owner.use_count() == count;
}

// Shared with the stream, which may still be leaving the system call that sent them when the other end has
// them all.
std::shared_ptr<const std::vector<float>> Numbers(size_t count, float first) {
  const auto numbers = std::make_shared<std::vector<float>>(count);
  for (size_t i = 0; i < count; ++i) (*numbers)[i] = first + static_cast<float>(i);
  return numbers;
}

std::string TextOf(absl::Span<const float> floats) {
  return {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)};
}

TEST_P(DirectStreamTest, MessagesOfAllSizesArriveWholeAndInOrderBothWaysAtOnce) {
  Start();
  const size_t largest = static_cast<size_t>(DirectStream::kPieceFloats);
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
      EXPECT_TRUE(got[i].second == TextOf(*sent[i])) << "payload " << i;
    }
  }
  EXPECT_EQ(at_server_.lent() > 0, GetParam() == Over::kLending);
}

TEST_P(DirectStreamTest, WhatComesOverTheSocketIsPutWhereItsReceiverWantsIt) {
  Start();
  at_server_.Offer(12000);
  const std::vector<size_t> sizes = {3000, 1, 3000, 3001, 0, 3000};  // one has no room there
  for (const size_t size : sizes) {
    const auto numbers = Numbers(size, static_cast<float>(size));
    const absl::Span<const float> run = *numbers;
    client_->Send(std::to_string(size), {&run, 1}, numbers);
  }
  const auto got = at_server_.Await(sizes.size());
  ASSERT_EQ(got.size(), sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_TRUE(got[i].second == TextOf(*Numbers(sizes[i], static_cast<float>(sizes[i])))) << i;
  }
  EXPECT_EQ(at_server_.in_place(), 4);
}

TEST_P(DirectStreamTest, AReaderThatStandsStillHoldsUpNobodyAndGetsAll) {
  Start();
  at_server_.StandStill();
  const auto payload = Numbers(static_cast<size_t>(DirectStream::kPieceFloats), 1);
  const absl::Span<const float> run = *payload;
  constexpr size_t kMessages = 40;  // more than sockets and rings take
  for (size_t i = 0; i < kMessages; ++i) client_->Send("up", {&run, 1}, payload);
  server_->Send("down", {&run, 1}, payload);  // by a thread that is held up itself: when it is not any more
  at_server_.Open();
  const auto got = at_server_.Await(kMessages);
  ASSERT_EQ(got.size(), kMessages);
  for (const auto& message : got) EXPECT_TRUE(message.second == TextOf(*payload));
  EXPECT_EQ(at_client_.Await(1).size(), 1u);
}

TEST_P(DirectStreamTest, WithMoreAnswersQueuedThanItsLimitAServerTakesNoRequests) {
  Start({.incarnation = kIncarnation, .rest_above = 2});
  at_client_.StandStill();
  const auto payload = Numbers(static_cast<size_t>(DirectStream::kPieceFloats), 1);
  const absl::Span<const float> run = *payload;
  for (int i = 0; i < 12; ++i) server_->Send("answer", {&run, 1}, payload);
  ASSERT_EQ(at_server_.Await(0).size(), 0u);
  for (int i = 0; i < 12; ++i) client_->Send("request", {&run, 1}, payload);
  at_client_.Open();
  EXPECT_EQ(at_client_.Await(12).size(), 12u);
  EXPECT_EQ(at_server_.Await(12).size(), 12u);
}

TEST_P(DirectStreamTest, AnOwnerIsReleasedWhenItsPayloadHasGoneAndAtTheLatestAtTheEnd) {
  Start();
  at_client_.StandStill();
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(DirectStream::kPieceFloats), 1.0f);
  const absl::Span<const float> run = *owner;
  for (int i = 0; i < 80; ++i) server_->Send("answer", {&run, 1}, owner);
  EXPECT_GT(owner.use_count(), 1);
  at_client_.Open();
  server_->Close();
  EXPECT_EQ(owner.use_count(), 1);
}

// A client one of whose callers may receive: its thread has found that there is nothing yet.
class ReceivingCallerTest : public DirectStreamTest {
 protected:
  void StartIdle() {
    Start();
    while (!client_->ReceiveUntil([] { return true; }, InAMinute())) std::this_thread::yield();
  }
  // Until the client has so many messages. `first`: done when the caller receives, and the thread does not.
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

TEST_P(ReceivingCallerTest, HasItsAnswersInItsOwnThreadAndTheRestComesInTheStreams) {
  StartIdle();
  const auto payload = Numbers(static_cast<size_t>(DirectStream::kPieceFloats), 1);
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

TEST_P(ReceivingCallerTest, WhatItHasTakenButNotAskedForIsTheStreamsThreads) {
  StartIdle();
  EXPECT_TRUE(ReceiveUntil(1, [&] {
    for (int i = 0; i < 100; ++i) server_->Send("message", {}, nullptr);
  }));
  EXPECT_EQ(at_client_.Await(100).size(), 100u);
}

TEST_P(ReceivingCallerTest, SendsMeanwhileWhatGoesUp) {
  StartIdle();
  const auto payload = Numbers(static_cast<size_t>(DirectStream::kPieceFloats), 1);
  const absl::Span<const float> run = *payload;
  constexpr size_t kMessages = 40;  // more than sockets and rings take
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

TEST_P(ReceivingCallerTest, GoesWhenItIsNudgedOrItsTimeIsUp) {
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

TEST_P(ReceivingCallerTest, GoesWhenItIsNudgedAlsoIfSomethingComesAtTheSameTime) {
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

TEST_P(ReceivingCallerTest, OneAtATime) {
  StartIdle();
  EXPECT_TRUE(client_->ReceiveUntil(
      [&] {
        EXPECT_FALSE(ReceiveUntil(1));
        return true;
      },
      InAMinute()));
}

TEST_P(ReceivingCallerTest, LearnsThatTheOtherEndHasGone) {
  StartIdle();
  Thread server("server", [&] {
    ASSERT_EQ(at_server_.Await(1).size(), 1u);
    server_->Close();
  });
  EXPECT_FALSE(ReceiveUntil(1, [&] { client_->Send("request", {}, nullptr); }));
  EXPECT_EQ(at_client_.AwaitEnd().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(ReceiveUntil(1));
}

TEST_P(ReceivingCallerTest, WhyTheOtherEndEndsItsThreadTells) {
  StartIdle();
  at_server_.AnswerWith(absl::InvalidArgumentError("request 3 begins twice"));
  EXPECT_FALSE(ReceiveUntil(1, [&] { client_->Send("request", {}, nullptr); }));
  EXPECT_EQ(at_client_.AwaitEnd(), absl::InvalidArgumentError("request 3 begins twice"));
}

TEST_P(ReceivingCallerTest, GoesWhenTheStreamIsAborted) {
  StartIdle();
  test::Gate asked;
  Thread other("other", [&] {
    EXPECT_TRUE(asked.Wait());
    client_->Abort();
  });
  EXPECT_FALSE(ReceiveUntil(1, [&] { asked.Open(); }));
  EXPECT_EQ(at_client_.AwaitEnd().code(), absl::StatusCode::kCancelled);
}

TEST_P(DirectStreamTest, AnEndThatClosesIsNoticedByTheOther) {
  Start();
  client_->Send("last", {}, nullptr);
  ASSERT_EQ(at_server_.Await(1).size(), 1u);
  client_->Close();
  EXPECT_EQ(at_client_.AwaitEnd().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(at_server_.AwaitEnd().code(), absl::StatusCode::kUnavailable);
}

TEST_P(DirectStreamTest, WhyAReceiverEndsTheStreamTheOtherEndIsTold) {
  Start();
  at_server_.AnswerWith(absl::InvalidArgumentError("request 3 begins twice"));
  client_->Send("request", {}, nullptr);
  EXPECT_EQ(at_client_.AwaitEnd(), absl::InvalidArgumentError("request 3 begins twice"));
}

TEST_P(DirectStreamTest, WhyAReceiverEndsTheStreamIsToldToAnEndThatSendsMore) {
  Start();
  const auto payload = Numbers(static_cast<size_t>(DirectStream::kPieceFloats), 1);
  const absl::Span<const float> run = *payload;
  at_server_.StandStill();
  for (int i = 0; i < 8; ++i) client_->Send("request", {&run, 1}, payload);
  at_server_.AnswerWith(absl::InvalidArgumentError("request 3 begins twice"));
  at_server_.Open();
  EXPECT_EQ(at_client_.AwaitEnd(), absl::InvalidArgumentError("request 3 begins twice"));
}

TEST_P(DirectStreamTest, WhatHasALowerRankGoesFirstOfWhatWaits) {
  Start();
  if (GetParam() == Over::kLending) GTEST_SKIP() << "what is lent has no rank";
  const auto payload = Numbers(static_cast<size_t>(DirectStream::kPieceFloats), 1);
  const absl::Span<const float> run = *payload;
  at_server_.StandStill();
  constexpr int kMessages = 64;  // more than sockets and rings take
  for (int rank = kMessages; rank > 0; --rank) client_->Send(std::to_string(rank), {&run, 1}, payload, rank);
  client_->Send(std::string("end"), {}, nullptr);
  at_server_.Open();
  const auto got = at_server_.Await(kMessages + 1);
  ASSERT_EQ(got.size(), kMessages + 1u);
  EXPECT_EQ(got.front().first, std::to_string(kMessages));  // was on its way
  for (int i = kMessages / 2; i + 1 < kMessages; ++i) {
    EXPECT_LT(std::stoi(got[static_cast<size_t>(i)].first), std::stoi(got[static_cast<size_t>(i) + 1].first));
  }
  EXPECT_EQ(got.back().first, "end");
}

TEST_P(DirectStreamTest, AGreetingForAnotherServerIsSentAway) {
  auto [one, other] = Pair();
  server_ = DirectStream::Accept(std::move(one), true, {.incarnation = kIncarnation}, at_server_).value();
  server_->Start();
  const auto connected =
      DirectStream::Connect(std::move(other), shared(), {.incarnation = kIncarnation + 1}, at_client_);
  EXPECT_EQ(connected.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(at_server_.AwaitEnd().code(), absl::StatusCode::kUnavailable);
}

TEST_P(DirectStreamTest, AnEndThatTakesNothingIsGivenUp) {
  auto [one, other] = Pair();
  server_ = DirectStream::Accept(std::move(one), true,
                                 {.incarnation = kIncarnation, .stall_limit = std::chrono::milliseconds(10)},
                                 at_server_)
                .value();
  server_->Start();
  const DirectGreeting greeting = {.incarnation = kIncarnation};
  ASSERT_EQ(send(other.get(), &greeting, sizeof greeting, 0), static_cast<ssize_t>(sizeof greeting));
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(DirectStream::kPieceFloats), 1.0f);
  const absl::Span<const float> run = *owner;
  for (int i = 0; i < 40; ++i) server_->Send("answer", {&run, 1}, owner);
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("taken nothing"));
  server_->Close();
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_P(DirectStreamTest, WhatIsLentOrHeldIsKeptUntilItHasBeenRead) {
  Start();
  client_->Send("request", {}, nullptr);  // the server knows then what the client takes
  ASSERT_EQ(at_server_.Await(1).size(), 1u);
  at_client_.StandStill();
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(DirectStream::kPieceFloats), 1.0f);
  const absl::Span<const float> run = *owner;
  server_->Send("values", {&run, 1}, owner);
  ASSERT_TRUE(at_client_.AwaitBegun());
  EXPECT_TRUE(owner.use_count() > 1 || !(lends() || holds()));
  at_client_.Open();
  ASSERT_EQ(at_client_.Await(1).size(), 1u);
  EXPECT_TRUE(AwaitUses(owner, 1));
}

// A sender whose memory is read, or taken from the socket, only when its receiver gets to it.
class NotCopyingTest : public DirectStreamTest {};
INSTANTIATE_TEST_SUITE_P(Over, NotCopyingTest, testing::Values(Over::kTcp, Over::kSocket, Over::kLending),
                         NameOf);

TEST_P(NotCopyingTest, AReaderIsNotGivenWhatASenderWritesWhenItHasGone) {
  Start();
  at_server_.StandStill();
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(DirectStream::kPieceFloats), 1.0f);
  const std::string sent = TextOf(*owner);
  const absl::Span<const float> run = *owner;
  for (int i = 0; i < 40; ++i) client_->Send("gradient", {&run, 1}, owner);
  ASSERT_TRUE(at_server_.AwaitBegun());
  client_->Close();
  std::fill(owner->begin(), owner->end(), 2.0f);
  at_server_.Open();
  EXPECT_EQ(at_server_.AwaitEnd().code(), absl::StatusCode::kUnavailable);
  EXPECT_LT(at_server_.messages(), 40u);
  for (const auto& message : at_server_.Await(0)) EXPECT_TRUE(message.second == sent);
}

TEST_P(NotCopyingTest, AllThatWaitedForRoomIsGivenBackWhenItHasBeenRead) {
  Start();
  client_->Send("request", {}, nullptr);
  ASSERT_EQ(at_server_.Await(1).size(), 1u);
  at_client_.StandStill();
  const auto owner = Numbers(static_cast<size_t>(DirectStream::kPieceFloats), 1);
  const absl::Span<const float> run = *owner;
  constexpr size_t kMessages = 80;  // more than sockets take
  for (size_t i = 0; i < kMessages; ++i) server_->Send(std::string(i * 50, 'h'), {&run, 1}, owner);
  ASSERT_TRUE(at_client_.AwaitBegun());
  at_client_.Open();
  ASSERT_EQ(at_client_.Await(kMessages).size(), kMessages);
  EXPECT_TRUE(AwaitUses(owner, 1));
}

TEST_P(NotCopyingTest, ManySmallRunsAreCopied) {
  Start();
  client_->Send("request", {}, nullptr);
  ASSERT_EQ(at_server_.Await(1).size(), 1u);
  at_client_.StandStill();
  const auto owner = Numbers(static_cast<size_t>(DirectStream::kPieceFloats), 1);
  std::vector<absl::Span<const float>> runs;
  for (size_t at = 0; at < owner->size(); at += 512) runs.push_back(absl::MakeSpan(*owner).subspan(at, 512));
  server_->Send("values", runs, owner);
  ASSERT_TRUE(at_client_.AwaitBegun());
  EXPECT_TRUE(AwaitUses(owner, 1));
  at_client_.Open();
  const auto got = at_client_.Await(1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(got[0].second == TextOf(*owner));
}

// The server's end over TCP, to a client that is the test itself and greets.
class HoldingTest : public testing::Test {
 protected:
  void SetUp() override {
    auto [one, other] = test::TcpPair();
    server_ = DirectStream::Accept(std::move(one), false, {.incarnation = kIncarnation}, receiver_).value();
    server_->Start();
    other_ = std::move(other);
    const DirectGreeting greeting = {.incarnation = kIncarnation};
    ASSERT_EQ(send(other_.get(), &greeting, sizeof greeting, 0), static_cast<ssize_t>(sizeof greeting));
  }
  Receiver receiver_;  // outlives the stream
  std::unique_ptr<DirectStream> server_;
  FileDescriptor other_;
};

// A client that reads, and never says so, keeps no more than so many payloads from being given back.
TEST_F(HoldingTest, AnEndThatNeverSaysWhatItHasReadGetsCopies) {
  const auto owner = std::make_shared<std::vector<float>>(size_t{32} << 10, 1.0f);  // the least that is held
  const absl::Span<const float> run = *owner;
  constexpr size_t kMessages = 300;
  const size_t bytes =
      sizeof(DirectGreeting) + kMessages * (sizeof(DirectPrologue) + 1 + run.size() * sizeof(float));
  for (size_t i = 0; i < kMessages; ++i) server_->Send(std::string("v"), {&run, 1}, owner);
  std::vector<char> room(size_t{1} << 20);
  for (size_t read = 0; read < bytes;) {
    pollfd readable = {.fd = other_.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&readable, 1, 60'000), 1);
    const ssize_t got = recv(other_.get(), room.data(), room.size(), MSG_DONTWAIT);
    ASSERT_GT(got, 0);
    read += static_cast<size_t>(got);
  }
  EXPECT_TRUE(AwaitUses(owner, 257));
}

// The other end takes nothing, and is not there when the stream ends: nothing of ours must go out later.
TEST_F(HoldingTest, ATcpStreamWhoseOtherEndReadsNothingIsResetWithinItsLimit) {
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(DirectStream::kPieceFloats), 1.0f);
  const absl::Span<const float> run = *owner;
  for (int i = 0; i < 200; ++i) server_->Send("answer", {&run, 1}, owner);  // more than the socket takes
  pollfd readable = {.fd = other_.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&readable, 1, 60'000), 1);
  server_->Close();
  EXPECT_EQ(owner.use_count(), 1);
  // Before a byte of it is read, so also while it still lies in the socket.
  EXPECT_EQ(CheckOtherEnd(other_.get()).code(), absl::StatusCode::kUnavailable);
}

TEST(PagePipe, ASocketThatIsClosedRaisesNoSignal) {
  auto [one, other] = SocketPair().value();
  const auto pipe = PagePipe::Open();
  ASSERT_EQ(pipe.status(), absl::OkStatus());
  other.Reset();
  std::vector<char> bytes(size_t{128} << 10);
  const iovec run = {bytes.data(), bytes.size()};
  const auto sent = (*pipe)->Send(one, {&run, 1});
  EXPECT_THAT(sent.status().message(), HasSubstr("Broken pipe"));
}

TEST(DirectStream, WhereTheSystemRefusesCopiesGoInstead) {
  auto [one, other] = SocketPair().value();
  ASSERT_EQ(fcntl(other.get(), F_SETFL, O_NONBLOCK | O_APPEND), 0);  // which splice(2) does not write to
  Receiver at_server, at_client;
  const auto server =
      DirectStream::Accept(std::move(one), true, {.incarnation = kIncarnation}, at_server).value();
  server->Start();
  const auto client =
      DirectStream::Connect(std::move(other), false, {.incarnation = kIncarnation}, at_client).value();
  client->Start();
  const auto payload = Numbers(static_cast<size_t>(DirectStream::kPieceFloats), 1);
  const absl::Span<const float> run = *payload;
  for (int i = 0; i < 3; ++i) client->Send("gradient", {&run, 1}, payload);
  const auto got = at_server.Await(3);
  ASSERT_EQ(got.size(), 3u);
  for (const auto& message : got) EXPECT_TRUE(message.second == TextOf(*payload));
  EXPECT_EQ(client->PieceOf({&run, 1}), DirectStream::kPieceFloats);  // nothing is held from then on
}

class LendingTest : public DirectStreamTest {};
INSTANTIATE_TEST_SUITE_P(Over, LendingTest, testing::Values(Over::kLending));

TEST_P(LendingTest, AReaderIsToldThatTheSenderHasGoneAndNotGivenWhatItFinds) {
  Start();
  at_server_.StandStill();
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(DirectStream::kPieceFloats), 1.0f);
  const absl::Span<const float> run = *owner;
  client_->Send("gradient", {&run, 1}, owner);
  ASSERT_TRUE(at_server_.AwaitBegun());
  client_->Close();  // and the sender may write there again
  at_server_.Open();
  EXPECT_EQ(at_server_.AwaitEnd().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(at_server_.Await(0), testing::IsEmpty());
}

TEST_P(LendingTest, AMemoryThatIsGoneWithItsEndIsNoFault) {
  const auto [here, there] = SocketPair().value();
  const uint64_t probe = 42;
  const auto memory =
      PeerMemory::Open(here.get(), {.address = reinterpret_cast<uint64_t>(&probe), .value = probe});
  ASSERT_NE(memory, nullptr);
  const LentRun gone = {.address = 64, .bytes = 8};
  char to[8];
  EXPECT_EQ(memory->Read({&gone, 1}, 0, to).code(), absl::StatusCode::kInvalidArgument);
  shutdown(there.get(), SHUT_RDWR);
  EXPECT_EQ(memory->Read({&gone, 1}, 0, to).code(), absl::StatusCode::kUnavailable);
}

class HostileClientTest : public DirectStreamTest {
 protected:
  // Greets with shared memory, and says one prologue, and of what is lent the places.
  absl::Status AfterSaying(const DirectPrologue& prologue, bool lends = false,
                           std::vector<LentRun> runs = {}) {
    const FileDescriptor raw = StartRaw(lends);
    const auto rings = SharedRings::Create(DirectStream::kRingBytes).value();
    const auto credit = SocketPair().value();
    static const uint64_t probe = 42;
    const DirectGreeting greeting = {
        .incarnation = kIncarnation,
        .shared = 1,
        .probe = {.address = reinterpret_cast<uint64_t>(&probe), .value = probe}};
    const int passed[] = {rings->descriptor(), credit.second.get()};
    EXPECT_EQ(SendPassing(raw, BytesOf(greeting), passed), absl::OkStatus());
    std::string said(BytesOf(prologue).data(), sizeof prologue);
    said.append(reinterpret_cast<const char*>(runs.data()), runs.size() * sizeof(LentRun));
    EXPECT_EQ(send(raw.get(), said.data(), said.size(), MSG_NOSIGNAL), static_cast<ssize_t>(said.size()));
    return at_server_.AwaitEnd();
  }
};
INSTANTIATE_TEST_SUITE_P(Over, HostileClientTest, testing::Values(Over::kRings));
class HostileLenderTest : public HostileClientTest {};
INSTANTIATE_TEST_SUITE_P(Over, HostileLenderTest, testing::Values(Over::kLending));

TEST_P(HostileClientTest, AHeaderBeyondTheLimitEndsTheStream) {
  EXPECT_THAT(AfterSaying({.header_bytes = 0x80000000}).message(), HasSubstr("header of 2147483648 bytes"));
}
TEST_P(HostileClientTest, APayloadBeyondTheLimitEndsTheStream) {
  EXPECT_THAT(AfterSaying({.payload_bytes = 0xffffffff}).message(), HasSubstr("payload of 4294967295 bytes"));
}
TEST_P(HostileClientTest, AnUnknownKindEndsTheStream) {
  EXPECT_THAT(AfterSaying({.kind = 9}).message(), HasSubstr("kind 9"));
}
TEST_P(HostileClientTest, APlaceAcrossTheRingsEndEndsTheStream) {
  EXPECT_THAT(AfterSaying({.kind = DirectPrologue::kInRing,
                           .payload_bytes = 1 << 18,
                           .position = DirectStream::kRingBytes - 64})
                  .message(),
              HasSubstr("not in the ring"));
}
TEST_P(HostileClientTest, APlaceFarAheadEndsTheStream) {
  EXPECT_THAT(AfterSaying({1, 0, 64, 0, ~uint64_t{0} - 63}).message(), HasSubstr("not in the ring"));
}
TEST_P(HostileLenderTest, MemoryThatItDoesNotHaveEndsTheStream) {
  const absl::Status end = AfterSaying({.kind = DirectPrologue::kLent, .payload_bytes = 4096, .runs = 1},
                                       /*lends=*/true, {{.address = 64, .bytes = 4096}});
  EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(end.message(), HasSubstr("lent memory: it is not there"));
}
TEST_P(HostileLenderTest, AnotherSizeThanIsLentEndsTheStream) {
  EXPECT_THAT(AfterSaying({.kind = DirectPrologue::kLent, .payload_bytes = 4096, .runs = 1}, /*lends=*/true,
                          {{.address = 64, .bytes = 8192}})
                  .message(),
              HasSubstr("payload of 4096 bytes, of which 8192 are lent"));
}
TEST_P(HostileLenderTest, SizesWhoseSumOverflowsEndTheStream) {
  EXPECT_THAT(AfterSaying({.kind = DirectPrologue::kLent, .payload_bytes = 4096, .runs = 2}, /*lends=*/true,
                          {{.address = 64, .bytes = ~uint64_t{0}}, {.address = 64, .bytes = 4097}})
                  .message(),
              HasSubstr("payload of 4096 bytes, of which"));
}
TEST_P(HostileLenderTest, TooManyRunsEndTheStream) {
  EXPECT_THAT(AfterSaying({.kind = DirectPrologue::kLent, .payload_bytes = 4096, .runs = 257}, /*lends=*/true)
                  .message(),
              HasSubstr("payload of 257 runs"));
}
TEST_P(HostileClientTest, WhatIsLentToWhoDoesNotTakeItEndsTheStream) {
  EXPECT_THAT(AfterSaying({.kind = DirectPrologue::kLent, .payload_bytes = 4096, .runs = 1}, /*lends=*/false,
                          {{.address = 64, .bytes = 4096}})
                  .message(),
              HasSubstr("kind 3"));
}
TEST_P(HostileClientTest, MoreReadThanWasLentEndsTheStream) {
  EXPECT_THAT(AfterSaying({.kind = DirectPrologue::kBorrowed, .position = 1}, /*lends=*/true).message(),
              HasSubstr("1 payloads read, of 0 lent"));
}
TEST_P(HostileClientTest, OneThatSharesNoMemoryIsLentNone) {
  const FileDescriptor raw = StartRaw(/*lends=*/true);
  const DirectGreeting greeting = {.incarnation = kIncarnation};
  const DirectPrologue borrows = {.kind = DirectPrologue::kBorrows};
  const std::string said = absl::StrCat(absl::string_view(BytesOf(greeting).data(), sizeof greeting),
                                        absl::string_view(BytesOf(borrows).data(), sizeof borrows));
  ASSERT_EQ(send(raw.get(), said.data(), said.size(), 0), static_cast<ssize_t>(said.size()));
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("kind 5"));
}
TEST_P(HostileClientTest, NoGreetingEndsTheStream) {
  const FileDescriptor raw = StartRaw();
  const std::string nonsense(sizeof(DirectGreeting), 'x');
  ASSERT_EQ(send(raw.get(), nonsense.data(), nonsense.size(), 0), static_cast<ssize_t>(nonsense.size()));
  EXPECT_EQ(at_server_.AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
}
TEST_P(HostileClientTest, ASocketInPlaceOfMemoryIsSentAway) {
  const FileDescriptor raw = StartRaw();
  const auto pair = SocketPair().value();
  const DirectGreeting greeting = {.incarnation = kIncarnation, .shared = 1};
  const int passed[] = {pair.first.get(), pair.second.get()};
  ASSERT_EQ(SendPassing(raw, BytesOf(greeting), passed), absl::OkStatus());
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("not sealed"));
}

}  // namespace
}  // namespace cairn::net
