#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/data_channel/stream/stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/net/data_channel/stream/data_ends.h"

namespace cairn::net {
namespace {

using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Over, DataStreamTest, kAllWays, NameOf);

TEST_P(DataStreamTest, MessagesOfAllSizesArriveInOrderInBothDirectionsAtOnce) {
  Start();
  const size_t largest = static_cast<size_t>(DataStream::kFragmentFloats);
  const std::vector<size_t> sizes = {0,           1,       3, 4095,    4096, 4097,   5000,
                                     largest - 1, largest, 2, largest, 0,    largest};
  std::vector<std::shared_ptr<const std::vector<float>>> sent;
  for (size_t i = 0; i < sizes.size(); ++i) sent.push_back(Numbers(sizes[i], static_cast<float>(i)));
  for (size_t i = 0; i < sent.size(); ++i) {
    const std::string header = std::string(i * 700, 'h') + std::to_string(i);
    // In two runs, as the memory of two variables.
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
  EXPECT_EQ(at_server_.borrowed() > 0, GetParam() == Over::kBorrowing);
}

TEST_P(DataStreamTest, PayloadsFromTheSocketArriveWhereTheReceiverWantsThem) {
  Start();
  at_server_.Offer(12000);
  // One is too large for the offered memory.
  const std::vector<size_t> sizes = {3000, 1, 3000, 3001, 0, 3000};
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

TEST_P(DataStreamTest, ABlockedReaderDoesNotBlockSendersAndReceivesAll) {
  Start();
  at_server_.StandStill();
  const auto payload = Numbers(static_cast<size_t>(DataStream::kFragmentFloats), 1);
  const absl::Span<const float> run = *payload;
  constexpr size_t kMessages = 40;  // more than sockets and rings hold
  for (size_t i = 0; i < kMessages; ++i) client_->Send("up", {&run, 1}, payload);
  server_->Send("down", {&run, 1}, payload);  // sent once the server's thread is not blocked any more
  at_server_.Open();
  const auto got = at_server_.Await(kMessages);
  ASSERT_EQ(got.size(), kMessages);
  for (const auto& message : got) EXPECT_TRUE(message.second == TextOf(*payload));
  EXPECT_EQ(at_client_.Await(1).size(), 1u);
}

TEST_P(DataStreamTest, AServerWithTooManyQueuedAnswersReceivesNoRequests) {
  Start({.incarnation = kIncarnation, .rest_above = 2});
  at_client_.StandStill();
  const auto payload = Numbers(static_cast<size_t>(DataStream::kFragmentFloats), 1);
  const absl::Span<const float> run = *payload;
  for (int i = 0; i < 12; ++i) server_->Send("answer", {&run, 1}, payload);
  ASSERT_EQ(at_server_.Await(0).size(), 0u);
  for (int i = 0; i < 12; ++i) client_->Send("request", {&run, 1}, payload);
  at_client_.Open();
  EXPECT_EQ(at_client_.Await(12).size(), 12u);
  EXPECT_EQ(at_server_.Await(12).size(), 12u);
}

TEST_P(DataStreamTest, OwnersAreReleasedAfterSendingAndAtTheLatestAtTheEnd) {
  Start();
  at_client_.StandStill();
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(DataStream::kFragmentFloats), 1.0f);
  const absl::Span<const float> run = *owner;
  for (int i = 0; i < 80; ++i) server_->Send("answer", {&run, 1}, owner);
  EXPECT_GT(owner.use_count(), 1);
  at_client_.Open();
  server_->Close();
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_P(DataStreamTest, ClosingOneEndEndsTheOther) {
  Start();
  client_->Send("last", {}, nullptr);
  ASSERT_EQ(at_server_.Await(1).size(), 1u);
  client_->Close();
  EXPECT_EQ(at_client_.AwaitEnd().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(at_server_.AwaitEnd().code(), absl::StatusCode::kUnavailable);
}

TEST_P(DataStreamTest, TheStatusOfAReceiverReachesTheOtherEnd) {
  Start();
  at_server_.AnswerWith(absl::InvalidArgumentError("request 3 begins twice"));
  client_->Send("request", {}, nullptr);
  EXPECT_EQ(at_client_.AwaitEnd(), absl::InvalidArgumentError("request 3 begins twice"));
}

TEST_P(DataStreamTest, TheStatusOfAReceiverReachesAnEndThatIsStillSending) {
  Start();
  const auto payload = Numbers(static_cast<size_t>(DataStream::kFragmentFloats), 1);
  const absl::Span<const float> run = *payload;
  at_server_.StandStill();
  for (int i = 0; i < 8; ++i) client_->Send("request", {&run, 1}, payload);
  at_server_.AnswerWith(absl::InvalidArgumentError("request 3 begins twice"));
  at_server_.Open();
  EXPECT_EQ(at_client_.AwaitEnd(), absl::InvalidArgumentError("request 3 begins twice"));
}

TEST_P(DataStreamTest, TheStatusOfAnEndThatFinishesReachesTheOther) {
  Start();
  client_->Send("request", {}, nullptr);
  ASSERT_EQ(at_server_.Await(1).size(), 1u);
  server_->Finish(absl::AbortedError("promoted"));
  server_->Finish(absl::InternalError("too late"));
  EXPECT_EQ(at_client_.AwaitEnd(), absl::AbortedError("promoted"));
  EXPECT_EQ(at_server_.AwaitEnd(), absl::AbortedError("promoted"));
}

TEST_P(DataStreamTest, QueuedMessagesAreSentInOrderOfTheirRank) {
  Start();
  if (GetParam() == Over::kBorrowing) GTEST_SKIP() << "borrowed payloads have no rank";
  const auto payload = Numbers(static_cast<size_t>(DataStream::kFragmentFloats), 1);
  const absl::Span<const float> run = *payload;
  at_server_.StandStill();
  constexpr int kMessages = 64;  // more than sockets and rings hold
  for (int rank = kMessages; rank > 0; --rank) client_->Send(std::to_string(rank), {&run, 1}, payload, rank);
  client_->Send(std::string("end"), {}, nullptr);
  at_server_.Open();
  const auto got = at_server_.Await(kMessages + 1);
  ASSERT_EQ(got.size(), kMessages + 1u);
  EXPECT_EQ(got.front().first, std::to_string(kMessages));  // was already being sent
  for (int i = kMessages / 2; i + 1 < kMessages; ++i) {
    EXPECT_LT(std::stoi(got[static_cast<size_t>(i)].first), std::stoi(got[static_cast<size_t>(i) + 1].first));
  }
  EXPECT_EQ(got.back().first, "end");
}

TEST_P(DataStreamTest, AHandshakeForAnotherServerIsRefused) {
  auto [one, other] = Pair();
  server_ = DataStream::Accept(std::move(one), true, {.incarnation = kIncarnation}, at_server_).value();
  ASSERT_TRUE(server_->Start().ok());
  const auto connected =
      DataStream::Connect(std::move(other), shared(), {.incarnation = kIncarnation + 1}, at_client_);
  EXPECT_EQ(connected.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(at_server_.AwaitEnd().code(), absl::StatusCode::kUnavailable);
}

TEST_P(DataStreamTest, AStreamWhoseOtherEndReceivesNothingEnds) {
  auto [one, other] = Pair();
  server_ = DataStream::Accept(std::move(one), true,
                               {.incarnation = kIncarnation, .stall_limit = std::chrono::milliseconds(10)},
                               at_server_)
                .value();
  ASSERT_TRUE(server_->Start().ok());
  const DataHandshake handshake = {.incarnation = kIncarnation};
  ASSERT_EQ(send(other.get(), &handshake, sizeof handshake, 0), static_cast<ssize_t>(sizeof handshake));
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(DataStream::kFragmentFloats), 1.0f);
  const absl::Span<const float> run = *owner;
  for (int i = 0; i < 40; ++i) server_->Send("answer", {&run, 1}, owner);
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("received nothing"));
  server_->Close();
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_P(DataStreamTest, AClientThatSendsNothingAfterTheHandshakeIsDisconnected) {
  auto [one, other] = Pair();
  server_ = DataStream::Accept(std::move(one), true,
                               {.incarnation = kIncarnation, .first_limit = std::chrono::milliseconds(20)},
                               at_server_)
                .value();
  ASSERT_TRUE(server_->Start().ok());
  const DataHandshake handshake = {.incarnation = kIncarnation};
  ASSERT_EQ(send(other.get(), &handshake, sizeof handshake, 0), static_cast<ssize_t>(sizeof handshake));
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("silent for too long"));
}

TEST_P(DataStreamTest, ASilentClientIsDisconnectedUnlessItWaitsForAnAnswer) {
  at_server_.OweAnswer(true);
  Start({.incarnation = kIncarnation, .idle_limit = std::chrono::milliseconds(20)});
  client_->Send("request", {}, nullptr);
  ASSERT_EQ(at_server_.Await(1).size(), 1u);
  ASSERT_TRUE(at_server_.AwaitAsked(3)) << "three times the limit have passed";
  EXPECT_FALSE(server_->ended());
  at_server_.OweAnswer(false);
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("silent for too long"));
}

TEST_P(DataStreamTest, OwnersOfZeroCopyPayloadsAreKeptUntilTheyHaveBeenRead) {
  Start();
  client_->Send("request", {}, nullptr);  // afterwards the server knows whether the client can borrow
  ASSERT_EQ(at_server_.Await(1).size(), 1u);
  at_client_.StandStill();
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(DataStream::kFragmentFloats), 1.0f);
  const absl::Span<const float> run = *owner;
  server_->Send("values", {&run, 1}, owner);
  ASSERT_TRUE(at_client_.AwaitBegun());
  EXPECT_TRUE(owner.use_count() > 1 || !(offers_memory() || pins()));
  at_client_.Open();
  ASSERT_EQ(at_client_.Await(1).size(), 1u);
  EXPECT_TRUE(AwaitUses(owner, 1));
}

// Transports on which the sender's memory is read only when the receiver handles the message.
class ZeroCopyTest : public DataStreamTest {};
INSTANTIATE_TEST_SUITE_P(Over, ZeroCopyTest, testing::Values(Over::kTcp, Over::kSocket, Over::kBorrowing),
                         NameOf);

TEST_P(ZeroCopyTest, AReaderNeverGetsWhatASenderWritesAfterTheEnd) {
  Start();
  at_server_.StandStill();
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(DataStream::kFragmentFloats), 1.0f);
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

TEST_P(ZeroCopyTest, QueuedPayloadsAreReleasedOnceTheyHaveBeenRead) {
  Start();
  client_->Send("request", {}, nullptr);
  ASSERT_EQ(at_server_.Await(1).size(), 1u);
  at_client_.StandStill();
  const auto owner = Numbers(static_cast<size_t>(DataStream::kFragmentFloats), 1);
  const absl::Span<const float> run = *owner;
  constexpr size_t kMessages = 80;  // more than sockets hold
  for (size_t i = 0; i < kMessages; ++i) server_->Send(std::string(i * 50, 'h'), {&run, 1}, owner);
  ASSERT_TRUE(at_client_.AwaitBegun());
  at_client_.Open();
  ASSERT_EQ(at_client_.Await(kMessages).size(), kMessages);
  EXPECT_TRUE(AwaitUses(owner, 1));
}

TEST_P(ZeroCopyTest, ManySmallRunsAreCopied) {
  Start();
  client_->Send("request", {}, nullptr);
  ASSERT_EQ(at_server_.Await(1).size(), 1u);
  at_client_.StandStill();
  const auto owner = Numbers(static_cast<size_t>(DataStream::kFragmentFloats), 1);
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

// A server's end over TCP, to a client that the test plays, after the handshake.
class PinningTest : public testing::Test {
 protected:
  void SetUp() override {
    auto [one, other] = test::TcpPair();
    server_ = DataStream::Accept(std::move(one), false, {.incarnation = kIncarnation}, receiver_).value();
    ASSERT_TRUE(server_->Start().ok());
    other_ = std::move(other);
    const DataHandshake handshake = {.incarnation = kIncarnation};
    ASSERT_EQ(send(other_.get(), &handshake, sizeof handshake, 0), static_cast<ssize_t>(sizeof handshake));
  }
  Receiver receiver_;  // outlives the stream
  std::unique_ptr<DataStream> server_;
  FileDescriptor other_;
};

// A client that reads payloads without confirming them keeps at most 256 of them from being released.
TEST_F(PinningTest, AnEndThatConfirmsNothingGetsCopies) {
  // The smallest payload that is pinned.
  const auto owner = std::make_shared<std::vector<float>>(size_t{32} << 10, 1.0f);
  const absl::Span<const float> run = *owner;
  constexpr size_t kMessages = 300;
  const size_t bytes =
      sizeof(DataHandshake) + kMessages * (sizeof(DataPrologue) + 1 + run.size() * sizeof(float));
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

// The other end reads nothing, and does not close when the stream ends: none of our memory may be sent later.
TEST_F(PinningTest, ATcpStreamWhoseOtherEndReadsNothingIsReset) {
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(DataStream::kFragmentFloats), 1.0f);
  const absl::Span<const float> run = *owner;
  for (int i = 0; i < 200; ++i) server_->Send("answer", {&run, 1}, owner);  // more than the socket holds
  pollfd readable = {.fd = other_.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&readable, 1, 60'000), 1);
  server_->Close();
  EXPECT_EQ(owner.use_count(), 1);
  // Noticed before the first byte is read, so also while data is still in the socket.
  EXPECT_EQ(CheckOtherEnd(other_.get()).code(), absl::StatusCode::kUnavailable);
}

TEST(ZeroCopySender, SendingToAClosedSocketRaisesNoSignal) {
  auto [one, other] = SocketPair().value();
  const auto pipe = ZeroCopySender::Open();
  ASSERT_EQ(pipe.status(), absl::OkStatus());
  other.Reset();
  std::vector<char> bytes(size_t{128} << 10);
  const iovec run = {bytes.data(), bytes.size()};
  const auto sent = (*pipe)->Send(one, {&run, 1});
  EXPECT_THAT(sent.status().message(), HasSubstr("Broken pipe"));
}

TEST(DataStream, PayloadsAreCopiedIfTheSystemRefusesPinning) {
  auto [one, other] = SocketPair().value();
  ASSERT_EQ(fcntl(other.get(), F_SETFL, O_NONBLOCK | O_APPEND), 0);  // splice(2) refuses it
  Receiver at_server, at_client;
  const auto server =
      DataStream::Accept(std::move(one), true, {.incarnation = kIncarnation}, at_server).value();
  ASSERT_TRUE(server->Start().ok());
  const auto client =
      DataStream::Connect(std::move(other), false, {.incarnation = kIncarnation}, at_client).value();
  ASSERT_TRUE(client->Start().ok());
  const auto payload = Numbers(static_cast<size_t>(DataStream::kFragmentFloats), 1);
  const absl::Span<const float> run = *payload;
  for (int i = 0; i < 3; ++i) client->Send("gradient", {&run, 1}, payload);
  const auto got = at_server.Await(3);
  ASSERT_EQ(got.size(), 3u);
  for (const auto& message : got) EXPECT_TRUE(message.second == TextOf(*payload));
  // Nothing is pinned from then on.
  EXPECT_EQ(client->RouteOf({&run, 1}).fragment_floats, DataStream::kFragmentFloats);
}

class BorrowingTest : public DataStreamTest {};
INSTANTIATE_TEST_SUITE_P(Over, BorrowingTest, testing::Values(Over::kBorrowing));

TEST_P(BorrowingTest, ReadingFromASenderThatClosedIsUnavailable) {
  Start();
  at_server_.StandStill();
  const auto owner =
      std::make_shared<std::vector<float>>(static_cast<size_t>(DataStream::kFragmentFloats), 1.0f);
  const absl::Span<const float> run = *owner;
  client_->Send("gradient", {&run, 1}, owner);
  ASSERT_TRUE(at_server_.AwaitBegun());
  client_->Close();  // from now on the sender may overwrite the memory
  at_server_.Open();
  EXPECT_EQ(at_server_.AwaitEnd().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(at_server_.Await(0), testing::IsEmpty());
}

}  // namespace
}  // namespace cairn::net
