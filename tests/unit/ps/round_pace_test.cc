#include "ps/round_pace.h"

#include <ostream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::ps {

// For gtest's messages.
void PrintTo(const RoundPace::Allowance& allowance, std::ostream* out) {
  *out << allowance.member << ": " << allowance.more;
}

namespace {

using testing::IsEmpty;
using testing::UnorderedElementsAre;
using Allowance = RoundPace::Allowance;

constexpr int64_t kSize = 20 * RoundPace::kStraggles;
constexpr int64_t kLead = RoundPace::kOnTheWay / 2;  // for two workers

class RoundPaceOfTwo : public testing::Test {
 protected:
  RoundPace pace_{2, kSize};
};

TEST_F(RoundPaceOfTwo, NoWorkerExceedsTheLead) {
  EXPECT_EQ(pace_.Begin(0), kLead);
  EXPECT_EQ(pace_.Begin(1), kLead);
  EXPECT_THAT(pace_.Advance(0, kLead), IsEmpty());
  EXPECT_THAT(pace_.Advance(1, 10), UnorderedElementsAre(Allowance{0, 10}, Allowance{1, kLead}));
  EXPECT_THAT(pace_.Advance(1, kLead), UnorderedElementsAre(Allowance{0, kLead}, Allowance{1, kLead - 10}));
  EXPECT_THAT(pace_.Advance(1, 10), IsEmpty()) << "now the other worker is behind";
}

TEST_F(RoundPaceOfTwo, AWorkerDoesNotWaitForOneThatHasNotBegun) {
  EXPECT_EQ(pace_.Begin(0), kLead);
  EXPECT_THAT(pace_.Advance(0, 1000), UnorderedElementsAre(Allowance{0, kLead}));
}

TEST_F(RoundPaceOfTwo, AWorkerWaitsForOneThatBeginsALittleLater) {
  pace_.Begin(0);
  pace_.Advance(0, RoundPace::kStraggles);
  EXPECT_EQ(pace_.Begin(1), kLead);
  EXPECT_THAT(pace_.Advance(1, 1000), UnorderedElementsAre(Allowance{1, kLead}));
  EXPECT_THAT(pace_.Advance(1, RoundPace::kStraggles), UnorderedElementsAre(Allowance{1, kLead - 1000}))
      << "the other worker already may";
}

TEST_F(RoundPaceOfTwo, NobodyWaitsForAStraggler) {
  pace_.Begin(0);
  pace_.Advance(0, RoundPace::kStraggles + 1);
  EXPECT_EQ(pace_.Begin(1), RoundPace::kStraggles + 1 + kLead);
  EXPECT_THAT(pace_.Advance(0, 1000),
              UnorderedElementsAre(Allowance{0, kLead}, Allowance{1, RoundPace::kStraggles + 1001 + kLead}));
  EXPECT_THAT(pace_.Advance(1, 2000), IsEmpty()) << "close enough again to be waited for";
}

TEST_F(RoundPaceOfTwo, AtTheEndTheWholeGradientIsAllowedOnce) {
  pace_.Begin(0);
  pace_.Begin(1);
  EXPECT_THAT(pace_.Advance(0, kSize - 1000), UnorderedElementsAre(Allowance{0, 1000}, Allowance{1, kSize}));
  EXPECT_THAT(pace_.Advance(1, kSize - 1000), IsEmpty());
  EXPECT_TRUE(pace_.IsUnderWay(0));
  EXPECT_THAT(pace_.Advance(0, 1000), IsEmpty());
  EXPECT_FALSE(pace_.IsUnderWay(0));
  EXPECT_THAT(pace_.Advance(1, 1000), IsEmpty());
}

TEST(RoundPace, OneWorkerAloneMaySendAll) {
  RoundPace pace(1, kSize);
  EXPECT_EQ(pace.Begin(0), kSize);
  EXPECT_THAT(pace.Advance(0, 1000), IsEmpty());
}

TEST(RoundPace, EachOfManyWorkersMaySendAPiece) {
  RoundPace pace(100, kSize);
  EXPECT_EQ(pace.Begin(7), net::kUpdateChunk);
}

}  // namespace
}  // namespace cairn::ps
