#include "embedding/initializers/row_initializer.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::embedding {
namespace {

using Kind = RowDistribution::Kind;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;

std::vector<float> RowOf(const RowInitializer& initializer, int64_t key, size_t dim) {
  std::vector<float> row(dim, std::numeric_limits<float>::quiet_NaN());
  initializer.Fill(key, absl::MakeSpan(row));
  return row;
}

RowInitializer Users(Kind kind) {
  return RowInitializer({.kind = kind, .center = 0, .spread = 1}, 7, "users");
}

TEST(RowInitializer, AConstantIsInEveryColumn) {
  const RowInitializer initializer({.center = 0.25}, 1, "t");
  EXPECT_THAT(RowOf(initializer, 5, 33), Each(0.25f));
}

// From an implementation in Python with libxxhash, in exact arithmetic. These never change: rows of a table that are
// made after a resume must be those that an older build would have made.
TEST(RowInitializer, UniformValuesAreTheSameOnEveryMachine) {
  const RowInitializer users = Users(Kind::kUniform);
  EXPECT_THAT(RowOf(users, 0, 4), ElementsAre(-0.4967867136001587f, 0.12584686279296875f, 0.3218423128128052f,
                                              -0.326473593711853f));
  EXPECT_EQ(RowOf(users, 0, 18)[17], -0.5973514318466187f);
  EXPECT_THAT(RowOf(users, -1, 4), ElementsAre(0.7222446203231812f, 0.6795597076416016f,
                                               -0.36601150035858154f, 0.029070734977722168f));
  EXPECT_THAT(RowOf(users, std::numeric_limits<int64_t>::max(), 2),
              ElementsAre(-0.8691085577011108f, -0.5655841827392578f));
}

// The same bits through the inverse distribution function of Python's statistics.NormalDist.
TEST(RowInitializer, NormalValuesAgreeWithAnotherInverseDistributionFunction) {
  EXPECT_THAT(RowOf(Users(Kind::kNormal), 0, 6),
              ElementsAre(FloatNear(0.6694424386867092, 2e-6), FloatNear(-1.530686463991385, 2e-6),
                          FloatNear(-0.9906788732813815, 2e-6), FloatNear(0.42131303487403277, 2e-6),
                          FloatNear(1.3465846184857657, 2e-6), FloatNear(-0.5218810226401598, 2e-6)));
  EXPECT_NEAR(RowOf(Users(Kind::kNormal), -1, 4)[3], -2.1825245883588655, 2e-6);
  EXPECT_THAT(RowOf(Users(Kind::kTruncatedNormal), 0, 4),
              ElementsAre(FloatNear(0.6344039781186949, 2e-6), FloatNear(-1.386412120735172, 2e-6),
                          FloatNear(-0.9293673166948635, 2e-6), FloatNear(0.40105294615377524, 2e-6)));
}

TEST(RowInitializer, CenterAndSpreadMoveAndScale) {
  const RowInitializer initializer({.kind = Kind::kUniform, .center = 2, .spread = 0.5}, 7, "users");
  EXPECT_EQ(RowOf(initializer, 0, 1)[0], 2 + 0.5f * -0.4967867136001587f);
}

TEST(RowInitializer, AShorterRowIsTheBeginningOfALongerOne) {
  for (const Kind kind : {Kind::kUniform, Kind::kNormal, Kind::kTruncatedNormal}) {
    const std::vector<float> longest = RowOf(Users(kind), 42, 70);
    for (size_t dim = 1; dim < 70; ++dim) {
      const std::vector<float> row = RowOf(Users(kind), 42, dim);
      ASSERT_TRUE(std::equal(row.begin(), row.end(), longest.begin())) << dim;
    }
  }
}

TEST(RowInitializer, EveryInstructionSetGivesTheSameBits) {
  for (const Kind kind : {Kind::kUniform, Kind::kNormal, Kind::kTruncatedNormal}) {
    const RowDistribution distribution{.kind = kind, .center = 0.1, .spread = 0.3};
    const RowInitializer baseline(distribution, 1, "t", optim::Isa::kBaseline);
    for (const optim::Isa isa : optim::SupportedIsas()) {
      const RowInitializer other(distribution, 1, "t", isa);
      for (int64_t key = 0; key < 2000; ++key) {
        ASSERT_EQ(RowOf(other, key, 37), RowOf(baseline, key, 37)) << optim::IsaName(isa);
      }
    }
  }
}

TEST(RowInitializer, SeedTableAndKeyAllMatter) {
  const RowDistribution uniform{.kind = Kind::kUniform, .spread = 1};
  const std::vector<float> row = RowOf(RowInitializer(uniform, 1, "a"), 3, 8);
  EXPECT_NE(RowOf(RowInitializer(uniform, 2, "a"), 3, 8), row);
  EXPECT_NE(RowOf(RowInitializer(uniform, 1, "b"), 3, 8), row);
  EXPECT_NE(RowOf(RowInitializer(uniform, 1, "a"), 4, 8), row);
  EXPECT_EQ(RowOf(RowInitializer(uniform, 1, "a"), 3, 8), row);
}

// Moments of 2^20 values of consecutive keys. The tolerances are four standard deviations of the estimates.
struct Moments {
  double mean = 0, variance = 0, fourth = 0, least = 0, most = 0, between_columns = 0, between_keys = 0;
};
Moments MomentsOf(Kind kind) {
  constexpr size_t kDim = 16;
  constexpr int64_t kKeys = 65536;
  const RowInitializer initializer = Users(kind);
  Moments moments;
  std::vector<float> previous(kDim);
  for (int64_t key = 0; key < kKeys; ++key) {
    const std::vector<float> row = RowOf(initializer, key, kDim);
    for (size_t c = 0; c < kDim; ++c) {
      const double x = row[c];
      moments.mean += x;
      moments.variance += x * x;
      moments.fourth += x * x * x * x;
      moments.least = std::min(moments.least, x);
      moments.most = std::max(moments.most, x);
      moments.between_columns += x * row[(c + 1) % kDim];
      moments.between_keys += x * previous[c];
    }
    previous = row;
  }
  for (double* sum :
       {&moments.mean, &moments.variance, &moments.fourth, &moments.between_columns, &moments.between_keys}) {
    *sum /= kDim * kKeys;
  }
  return moments;
}

TEST(RowInitializer, UniformValuesHaveTheMomentsOfTheUniformDistribution) {
  const Moments moments = MomentsOf(Kind::kUniform);
  EXPECT_NEAR(moments.mean, 0, 0.0023);
  EXPECT_NEAR(moments.variance, 1 / 3.0, 0.0012);
  EXPECT_NEAR(moments.between_columns, 0, 0.0013);
  EXPECT_NEAR(moments.between_keys, 0, 0.0013);
  EXPECT_GE(moments.least, -1);
  EXPECT_LT(moments.most, 1);
}

TEST(RowInitializer, NormalValuesHaveTheMomentsOfTheNormalDistribution) {
  const Moments moments = MomentsOf(Kind::kNormal);
  EXPECT_NEAR(moments.mean, 0, 0.004);
  EXPECT_NEAR(moments.variance, 1, 0.0056);
  EXPECT_NEAR(moments.fourth, 3, 0.039);
  EXPECT_NEAR(moments.between_columns, 0, 0.004);
  EXPECT_NEAR(moments.between_keys, 0, 0.004);
  EXPECT_GT(moments.most, 4.3);
  EXPECT_LT(moments.least, -4.3);
}

TEST(RowInitializer, TruncatedNormalValuesStayWithinTwoStandardDeviations) {
  const Moments moments = MomentsOf(Kind::kTruncatedNormal);
  EXPECT_NEAR(moments.mean, 0, 0.0035);
  EXPECT_NEAR(moments.variance, 0.87962566103423978 * 0.87962566103423978, 0.0035);
  EXPECT_NEAR(moments.most, 2, 1e-4);
  EXPECT_NEAR(moments.least, -2, 1e-4);
  EXPECT_LE(moments.most, 2.00001);
}

}  // namespace
}  // namespace cairn::embedding
