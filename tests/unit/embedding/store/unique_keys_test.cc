#include "embedding/store/unique_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <unordered_map>
#include <vector>

namespace cairn::embedding {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(UniqueKeys, KeysComeInTheOrderOfTheirFirstAppearance) {
  UniqueKeys unique;
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  unique.Compute({7, -1, 7, 0, kMin, -1, 0, 7});
  EXPECT_THAT(unique.keys(), ElementsAre(7, -1, 0, kMin));
  EXPECT_THAT(unique.positions(), ElementsAre(0, 1, 0, 2, 3, 1, 2, 0));
}

TEST(UniqueKeys, AnEmptyBatchHasNoKeys) {
  UniqueKeys unique;
  unique.Compute({1, 2});
  unique.Compute({});
  EXPECT_THAT(unique.keys(), IsEmpty());
  EXPECT_THAT(unique.positions(), IsEmpty());
}

TEST(UniqueKeys, AgreesWithAMapThroughBatchesOfManySizes) {
  UniqueKeys unique;
  std::mt19937_64 random(1);
  for (const int shift : {0, 16, 48}) {
    for (const size_t size : {1u, 2u, 20'000u, 1000u, 60'000u}) {
      std::vector<int64_t> batch(size);
      for (int64_t& key : batch) key = static_cast<int64_t>(random() % (size / 2 + 1) << shift);
      std::unordered_map<int64_t, int32_t> expected;
      unique.Compute(batch);
      ASSERT_EQ(unique.positions().size(), size);
      for (size_t i = 0; i < size; ++i) {
        const auto next = static_cast<int32_t>(expected.size());
        ASSERT_EQ(unique.positions()[i], expected.emplace(batch[i], next).first->second);
        ASSERT_EQ(unique.keys()[unique.positions()[i]], batch[i]);
      }
      ASSERT_EQ(unique.keys().size(), expected.size());
    }
  }
}

}  // namespace
}  // namespace cairn::embedding
