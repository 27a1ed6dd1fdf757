#include "common/core/random.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cairn {
namespace {

// Known answers from Random123 by the authors of Philox (kat_vectors, philox 4x32, 10 rounds).
TEST(Philox, MatchesThePublishedKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, DependsOnlyOnSeedAndStream) {
  Random a(7, "init/conv2d/kernel"), b(7, "init/conv2d/kernel"), other_seed(8, "init/conv2d/kernel"),
      other_stream(7, "init/dense/kernel");
  const uint32_t first = a.NextUint32();
  EXPECT_EQ(first, b.NextUint32());
  EXPECT_NE(first, other_seed.NextUint32());
  EXPECT_NE(first, other_stream.NextUint32());
}

TEST(Random, UniformStaysInItsHalfOpenInterval) {
  Random random(1, "uniform");
  float low = 1, high = 0;
  for (int i = 0; i < 100000; ++i) {
    const float value = random.NextUniform();
    low = std::min(low, value);
    high = std::max(high, value);
  }
  EXPECT_GE(low, 0.0f);
  EXPECT_LT(high, 1.0f);
  EXPECT_LT(low, 0.001f);
  EXPECT_GT(high, 0.999f);
}

TEST(Random, NormalHasMeanZeroAndVarianceOne) {
  Random random(1, "normal");
  double sum = 0, squares = 0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) {
    const double value = random.NextNormal();
    sum += value;
    squares += value * value;
  }
  // The tolerance is five standard errors: 1/sqrt(n) = 0.0022 for the mean, sqrt(2/n) = 0.0032 for the
  // variance.
  EXPECT_NEAR(sum / kCount, 0.0, 0.011);
  EXPECT_NEAR(squares / kCount, 1.0, 0.016);
}

TEST(RandomPermutation, ContainsEveryNumberOnce) {
  Random random(3, "shuffle");
  auto order = RandomPermutation(1000, random);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (uint32_t i = 0; i < 1000; ++i) EXPECT_EQ(order[i], i);
}

}  // namespace
}  // namespace cairn
