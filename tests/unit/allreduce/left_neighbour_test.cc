#include "worker/allreduce/left_neighbour.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::allreduce {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

constexpr TimePoint kStart{seconds(1000)};

class NoStream final : public RingStream {
 public:
  void Send(const v1::RingHeader&, net::FloatSpans, const std::shared_ptr<const void>&) override {}
  void End(const absl::Status&) override {}
};

v1::GreetRequest From(uint64_t incarnation) {
  v1::GreetRequest request;
  request.set_incarnation(incarnation);
  return request;
}

// A neighbour with a lease of 8 s, whose process 1 has connected at the start.
class LeftNeighbourTest : public testing::Test {
 protected:
  LeftNeighbourTest() { left_.Connect(std::make_shared<NoStream>(), /*incarnation=*/1, kStart); }
  LeftNeighbour left_{"worker/1", seconds(8)};
};

TEST_F(LeftNeighbourTest, OnlyAnotherProcessIsARestart) {
  EXPECT_FALSE(left_.IsRestart(From(1)));
  EXPECT_TRUE(left_.IsRestart(From(2)));
  left_.Disconnect();
  EXPECT_FALSE(left_.IsRestart(From(2)));
}

TEST_F(LeftNeighbourTest, ASecondProcessIsRefusedWhileTheFirstOneSends) {
  EXPECT_TRUE(absl::IsUnavailable(left_.CheckIsGone(From(2), kStart)));
  left_.Hear(kStart + seconds(3));
  const absl::Status refused = left_.CheckIsGone(From(2), kStart + seconds(3));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("worker/1 is already running"));
}

TEST_F(LeftNeighbourTest, AMessageWithinAQuarterOfALeaseDoesNotProveThatItsSenderLives) {
  EXPECT_TRUE(absl::IsUnavailable(left_.CheckIsGone(From(2), kStart)));
  left_.Hear(kStart + seconds(2));
  EXPECT_TRUE(absl::IsUnavailable(left_.CheckIsGone(From(2), kStart + seconds(4))));
  EXPECT_TRUE(left_.CheckIsGone(From(2), kStart + seconds(5)).ok()) << "after half a lease";
}

TEST_F(LeftNeighbourTest, TheWaitBeginsAgainWithAThirdProcess) {
  EXPECT_TRUE(absl::IsUnavailable(left_.CheckIsGone(From(2), kStart)));
  EXPECT_TRUE(absl::IsUnavailable(left_.CheckIsGone(From(3), kStart + seconds(5))));
}

TEST_F(LeftNeighbourTest, ALeaseOfSilenceIsALossUntilBye) {
  EXPECT_FALSE(left_.IsSilent(kStart + seconds(8)));
  EXPECT_TRUE(left_.IsSilent(kStart + seconds(9)));
  left_.SetBye();
  EXPECT_FALSE(left_.IsSilent(kStart + seconds(9)));
}

TEST_F(LeftNeighbourTest, ANewRingEpochBeginsWithoutStreamAndBye) {
  left_.SetBye();
  EXPECT_NE(left_.Disconnect(), nullptr);
  EXPECT_FALSE(left_.connected());
  EXPECT_FALSE(left_.bye());
  EXPECT_FALSE(left_.IsSilent(kStart + seconds(9)));
}

}  // namespace
}  // namespace cairn::allreduce
