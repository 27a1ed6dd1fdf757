#include "ps/table/round_flow_control.h"

#include <ostream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::ps {

// For gtest's messages.
void PrintTo(const RoundFlowControl::Credit& credit, std::ostream* out) {
  *out << credit.member << ": " << credit.more;
}

namespace {

using testing::IsEmpty;
using testing::UnorderedElementsAre;
using Credit = RoundFlowControl::Credit;

constexpr int64_t kSize = 20 * RoundFlowControl::kStraggles;
constexpr int64_t kLead = RoundFlowControl::kOnTheWay / 2;  // for two workers

class FlowControlOfTwoWorkers : public testing::Test {
 protected:
  RoundFlowControl flow_control_{2, kSize};
};

TEST_F(FlowControlOfTwoWorkers, NoWorkerExceedsTheLead) {
  EXPECT_EQ(flow_control_.Begin(0), kLead);
  EXPECT_EQ(flow_control_.Begin(1), kLead);
  EXPECT_THAT(flow_control_.Advance(0, kLead), IsEmpty());
  EXPECT_THAT(flow_control_.Advance(1, 10), UnorderedElementsAre(Credit{0, 10}, Credit{1, kLead}));
  EXPECT_THAT(flow_control_.Advance(1, kLead), UnorderedElementsAre(Credit{0, kLead}, Credit{1, kLead - 10}));
  EXPECT_THAT(flow_control_.Advance(1, 10), IsEmpty()) << "now the other worker is behind";
}

TEST_F(FlowControlOfTwoWorkers, AWorkerDoesNotWaitForOneThatHasNotBegun) {
  EXPECT_EQ(flow_control_.Begin(0), kLead);
  EXPECT_THAT(flow_control_.Advance(0, 1000), UnorderedElementsAre(Credit{0, kLead}));
}

TEST_F(FlowControlOfTwoWorkers, AWorkerWaitsForOneThatBeginsALittleLater) {
  flow_control_.Begin(0);
  flow_control_.Advance(0, RoundFlowControl::kStraggles);
  EXPECT_EQ(flow_control_.Begin(1), kLead);
  EXPECT_THAT(flow_control_.Advance(1, 1000), UnorderedElementsAre(Credit{1, kLead}));
  EXPECT_THAT(flow_control_.Advance(1, RoundFlowControl::kStraggles),
              UnorderedElementsAre(Credit{1, kLead - 1000}))
      << "the other worker may send that much already";
}

TEST_F(FlowControlOfTwoWorkers, NoWorkerWaitsForAStraggler) {
  flow_control_.Begin(0);
  flow_control_.Advance(0, RoundFlowControl::kStraggles + 1);
  EXPECT_EQ(flow_control_.Begin(1), RoundFlowControl::kStraggles + 1 + kLead);
  EXPECT_THAT(flow_control_.Advance(0, 1000),
              UnorderedElementsAre(Credit{0, kLead}, Credit{1, RoundFlowControl::kStraggles + 1001 + kLead}));
  EXPECT_THAT(flow_control_.Advance(1, 2000), IsEmpty()) << "close enough again to be waited for";
}

TEST_F(FlowControlOfTwoWorkers, AtTheEndTheWholeGradientIsAllowedOnce) {
  flow_control_.Begin(0);
  flow_control_.Begin(1);
  EXPECT_THAT(flow_control_.Advance(0, kSize - 1000),
              UnorderedElementsAre(Credit{0, 1000}, Credit{1, kSize}));
  EXPECT_THAT(flow_control_.Advance(1, kSize - 1000), IsEmpty());
  EXPECT_TRUE(flow_control_.IsUnderWay(0));
  EXPECT_THAT(flow_control_.Advance(0, 1000), IsEmpty());
  EXPECT_FALSE(flow_control_.IsUnderWay(0));
  EXPECT_THAT(flow_control_.Advance(1, 1000), IsEmpty());
}

TEST(RoundFlowControl, OneWorkerAloneMaySendAll) {
  RoundFlowControl flow_control(1, kSize);
  EXPECT_EQ(flow_control.Begin(0), kSize);
  EXPECT_THAT(flow_control.Advance(0, 1000), IsEmpty());
}

TEST(RoundFlowControl, EachOfManyWorkersMaySendAPiece) {
  RoundFlowControl flow_control(100, kSize);
  EXPECT_EQ(flow_control.Begin(7), net::kUpdateChunk);
}

}  // namespace
}  // namespace cairn::ps
