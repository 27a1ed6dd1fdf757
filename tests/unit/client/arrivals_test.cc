#include "client/gradients/arrivals.h"

#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "common/system/thread.h"
#include "gtest/gtest.h"

namespace cairn::client {
namespace {

TimePoint InAMinute() {
  return std::chrono::steady_clock::now() + std::chrono::minutes(1);
}
absl::Status NoFailure() {
  return absl::OkStatus();
}
void NobodyReceives(int, absl::FunctionRef<bool()>) {}

// Variables of 1000, 3000 and 96 elements, the first two on ps/0, the last on ps/1.
class ArrivalsTest : public testing::Test {
 protected:
  ArrivalsTest() {
    const std::vector<net::VariableInfo> variables = {
        {"a", Shape({1000}), 0}, {"b", Shape({3000}), 1000}, {"c", Shape({96}), 4000}};
    const std::vector<std::vector<net::Slice>> slices = {
        {{"a", Shape({1000}), 0, 1000, 0}, {"b", Shape({3000}), 0, 3000, 1000}},
        {{"c", Shape({96}), 0, 96, 0}}};
    layout_ = net::Layout::Create(variables, slices).value();
    arrivals_.Begin(layout_);
  }
  bool Here(int variable) {  // does not wait
    return arrivals_.Await(variable, std::chrono::steady_clock::now(), NoFailure, NobodyReceives);
  }
  bool Come(int server, int64_t begin, int64_t end) {
    if (!arrivals_.Admit(server, begin, end - begin)) return false;
    arrivals_.Add(server, begin, end - begin);
    return true;
  }

  net::Layout layout_;
  Arrivals arrivals_;
};

TEST_F(ArrivalsTest, AVariableHasArrivedWhenAllItsPagesHave) {
  EXPECT_TRUE(Come(0, 0, 1024));
  EXPECT_TRUE(Here(0));
  EXPECT_FALSE(Here(1)) << "only its first 24 elements have arrived";
  EXPECT_TRUE(Come(0, 2048, 4000));
  EXPECT_FALSE(Here(1));
  EXPECT_TRUE(Come(0, 1024, 2048));
  EXPECT_TRUE(Here(1));
  EXPECT_FALSE(Here(2)) << "it is on another server";
  EXPECT_TRUE(Come(1, 0, 96));
  EXPECT_TRUE(Here(2));
  EXPECT_TRUE(arrivals_.intact());
}

TEST_F(ArrivalsTest, AWaitingCallReturnsWhenTheValuesArrive) {
  Thread stream("stream", [&] {
    EXPECT_TRUE(Come(0, 0, 1024));
    EXPECT_TRUE(Come(0, 1024, 4000));
  });
  EXPECT_TRUE(arrivals_.Await(1, InAMinute(), NoFailure, NobodyReceives));
  stream.Join();
}

TEST_F(ArrivalsTest, ASecondArrivalIsRefusedOnceItMayHaveBeenRead) {
  EXPECT_TRUE(Come(0, 0, 1024));
  EXPECT_TRUE(Come(0, 0, 4000)) << "no values have been awaited";
  EXPECT_TRUE(Here(1));
  EXPECT_FALSE(Come(0, 1024, 2048));
  EXPECT_FALSE(arrivals_.intact());
  EXPECT_FALSE(Here(1));
  arrivals_.Begin(layout_);
  EXPECT_TRUE(arrivals_.intact());
  EXPECT_TRUE(Come(0, 1024, 2048));
}

TEST_F(ArrivalsTest, ASecondArrivalOfOneHalfInvalidatesThatHalf) {
  EXPECT_TRUE(Come(0, 0, 4000));
  EXPECT_TRUE(arrivals_.Admit(0, 0, 1024));  // and is being written now
  EXPECT_FALSE(Here(0));
  arrivals_.Add(0, 0, 1024);
  EXPECT_TRUE(Here(0));
}

TEST_F(ArrivalsTest, ChunksThatCutPagesAreNotCounted) {
  EXPECT_TRUE(Come(0, 0, 1000));
  EXPECT_TRUE(Come(0, 1000, 4000));
  EXPECT_FALSE(Here(0));
  EXPECT_TRUE(arrivals_.intact());
}

TEST_F(ArrivalsTest, AClosedServerIsNotWaitedFor) {
  EXPECT_TRUE(Come(0, 0, 1024));
  arrivals_.Close(0);
  EXPECT_TRUE(arrivals_.Await(0, InAMinute(), NoFailure, NobodyReceives)) << "it has arrived before";
  EXPECT_FALSE(arrivals_.Await(1, InAMinute(), NoFailure, NobodyReceives));
}

TEST_F(ArrivalsTest, AfterAFailedPushNoServerIsWaitedForUntilTheNextStep) {
  EXPECT_TRUE(Come(0, 0, 1024));
  arrivals_.Fail();
  EXPECT_TRUE(arrivals_.Await(0, InAMinute(), NoFailure, NobodyReceives)) << "it has arrived before";
  EXPECT_FALSE(arrivals_.Await(1, InAMinute(), NoFailure, NobodyReceives));
  EXPECT_FALSE(arrivals_.Await(2, InAMinute(), NoFailure, NobodyReceives)) << "it is on another server";
  arrivals_.Begin(layout_);
  Thread stream("stream", [&] { EXPECT_TRUE(Come(1, 0, 96)); });
  EXPECT_TRUE(arrivals_.Await(2, InAMinute(), NoFailure, NobodyReceives));
  stream.Join();
}

TEST_F(ArrivalsTest, AFailureEndsTheWait) {
  EXPECT_FALSE(
      arrivals_.Await(1, InAMinute(), [] { return absl::CancelledError("stopped"); }, NobodyReceives));
}

TEST_F(ArrivalsTest, ElementsOutsideTheArenaAreLeftToTheWriter) {
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(Come(0, -1024, 1024));
  EXPECT_TRUE(Come(0, 0, 8192));
  EXPECT_TRUE(Come(0, 1024, 1024));
  for (const auto& [begin, count] :
       {std::pair(kFar - 1023, int64_t{1024}), {int64_t{0}, kFar}, {kFar, kFar}}) {
    EXPECT_TRUE(arrivals_.Admit(0, begin, count));
    arrivals_.Add(0, begin, count);
  }
  EXPECT_FALSE(Here(0));
  EXPECT_TRUE(arrivals_.intact());
}

}  // namespace
}  // namespace cairn::client
