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
#include "tests/support/gate.h"
#include "tests/unit/net/direct_ends.h"

namespace cairn::net {
namespace {

using ::testing::HasSubstr;

std::string NameOf(const testing::TestParamInfo<Over>& over) {
  constexpr const char* kNames[] = {"Tcp",           "TcpCopying",   "Socket",
                                    "SocketCopying", "SharedMemory", "Lending"};
  return kNames[static_cast<size_t>(over.param)];
}
const auto kAllWays = testing::Values(Over::kTcp, Over::kTcpCopying, Over::kSocket, Over::kSocketCopying,
                                      Over::kRings, Over::kLending);
INSTANTIATE_TEST_SUITE_P(Over, DirectStreamTest, kAllWays, NameOf);

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

// Of ends that have addresses of their own, so that one may hold the other back.
class AllowanceStreamTest : public testing::Test {
 protected:
  AllowanceStreamTest() {
    auto [one, other] = test::TcpPair("127.0.0.2");
    server_ =
        DirectStream::Accept(std::move(other), false, {.incarnation = kIncarnation}, at_server_).value();
    server_->Start();
    client_ = DirectStream::Connect(std::move(one), false, {.incarnation = kIncarnation}, at_client_).value();
    client_->Start();
  }
  // The client has heard of it.
  void Allow(uint64_t bytes) {
    server_->Allow(bytes);
    server_->Send("and", {}, nullptr);
    at_client_.Await(++told_);
  }
  void SendPiece() {
    const absl::Span<const float> run = *piece_;
    client_->Send("piece", {&run, 1}, piece_);
  }
  static constexpr uint64_t kPieceBytes = sizeof(float) * DirectStream::kPieceFloats;
  const std::shared_ptr<const std::vector<float>> piece_ =
      Numbers(static_cast<size_t>(DirectStream::kPieceFloats), 1);
  Receiver at_server_, at_client_;  // outlive the streams
  std::unique_ptr<DirectStream> server_, client_;
  size_t told_ = 0;
};

TEST_F(AllowanceStreamTest, WhatIsBeyondWaitsAndGoesAfterAWhileAllTheSame) {
  SendPiece();
  at_server_.Await(1);
  // A round trip here allows less than another piece, unless the machine stood still.
  Allow(1);
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i) SendPiece();
  ASSERT_EQ(at_server_.Await(5).size(), 5u);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, Allowance::kPatience);
}

TEST_F(AllowanceStreamTest, SmallMessagesDoNotWait) {
  Allow(0);
  const auto numbers = Numbers(100, 1);
  const absl::Span<const float> run = *numbers;
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) client_->Send("small", {&run, 1}, numbers);
  EXPECT_EQ(at_server_.Await(100).size(), 100u);
  EXPECT_GT(begun + std::chrono::minutes(1), std::chrono::steady_clock::now());
}

// Of many tries at least one is over before the patience is: what is allowed need not wait for that.
TEST_F(AllowanceStreamTest, WhoIsAllowedMoreGoesOnAtOnce) {
  bool at_once = false;
  for (size_t sent = 0; sent < 200 && !at_once; sent += 2) {
    Allow(1);
    SendPiece();
    SendPiece();
    at_server_.Await(sent + 1);
    const bool waited = at_server_.messages() == sent + 1;
    const auto begun = std::chrono::steady_clock::now();
    server_->Allow(2 * kPieceBytes);
    at_server_.Await(sent + 2);
    at_once = waited && std::chrono::steady_clock::now() - begun < Allowance::kPatience / 2;
  }
  EXPECT_TRUE(at_once);
}

// That the other end's payloads have been read.
TEST_F(AllowanceStreamTest, WhatTheOtherEndWaitsForOvertakesWhatMustWait) {
  bool overtook = false;
  for (size_t sent = 0; sent < 40 && !overtook; sent += 2) {
    Allow(1);
    SendPiece();
    SendPiece();
    at_server_.Await(sent + 1);
    const auto values = Numbers(static_cast<size_t>(DirectStream::kPieceFloats), 7);
    const absl::Span<const float> run = *values;
    server_->Send("values", {&run, 1}, values);
    at_client_.Await(++told_);
    ASSERT_TRUE(AwaitUses(values, 1));
    overtook = at_server_.messages() == sent + 1;
    at_server_.Await(sent + 2);
  }
  EXPECT_TRUE(overtook);
}

// Of this process, in which both ends are.
class PeerMemoryTest : public testing::Test {
 protected:
  std::pair<FileDescriptor, FileDescriptor> ends_ = SocketPair().value();
  const uint64_t probe_ = 42;
  const std::unique_ptr<PeerMemory> memory_ =
      PeerMemory::Open(ends_.first.get(), {.address = reinterpret_cast<uint64_t>(&probe_), .value = probe_});
};

TEST_F(PeerMemoryTest, ThatIsGoneWithItsEndIsNoFault) {
  ASSERT_NE(memory_, nullptr);
  const LentRun gone = {.address = 64, .bytes = 8};
  char to[8];
  const absl::Span<char> place = to;
  EXPECT_EQ(memory_->Read({&gone, 1}, 0, {&place, 1}).code(), absl::StatusCode::kInvalidArgument);
  shutdown(ends_.second.get(), SHUT_RDWR);
  EXPECT_EQ(memory_->Read({&gone, 1}, 0, {&place, 1}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(PeerMemoryTest, ManyRunsAreReadToManyPlaces) {
  ASSERT_NE(memory_, nullptr);
  std::vector<char> lent(10'000);
  for (size_t i = 0; i < lent.size(); ++i) lent[i] = static_cast<char>(i % 101);
  const auto address = reinterpret_cast<uint64_t>(lent.data());
  const LentRun runs[] = {{address + 5'000, 5'000}, {address, 5'000}};
  std::vector<char> read(9'990);
  std::vector<absl::Span<char>> places;  // more than the system takes at once
  for (size_t begin = 0; begin < read.size(); begin += 3) places.push_back({read.data() + begin, 3});
  ASSERT_EQ(memory_->Read(runs, 7, places), absl::OkStatus());
  EXPECT_TRUE(std::equal(read.begin(), read.begin() + 4'993, lent.begin() + 5'007));
  EXPECT_TRUE(std::equal(read.begin() + 4'993, read.end(), lent.begin()));
  places.push_back({read.data(), 4});
  EXPECT_EQ(memory_->Read(runs, 7, places).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn::net
