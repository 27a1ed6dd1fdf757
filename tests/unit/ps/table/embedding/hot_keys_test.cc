#include "ps/table/embedding/hot_keys.h"

#include <vector>

#include "gtest/gtest.h"

namespace cairn::ps {
namespace {

// `calls` batches of 400 keys: key 1 occurs 100 times in each, key 2 50 times, and all others once in all batches.
HotKeys Counted(int calls) {
  HotKeys hot;
  int64_t rare = 1000;
  for (int call = 0; call < calls; ++call) {
    std::vector<int64_t> keys;
    for (int i = 0; i < 400; ++i) keys.push_back(i % 4 == 0 ? 1 : i % 8 == 1 ? 2 : ++rare);
    hot.Add(keys);
  }
  return hot;
}

TEST(HotKeys, FindsTheMostFrequentKeysAmongManyMoreThanItCounts) {
  const HotKeys hot = Counted(400);
  EXPECT_NEAR(static_cast<double>(hot.total()), 160000, 4 * 71 * 32);
  const auto top = hot.Top(3);
  ASSERT_EQ(top.size(), 2u) << "the others occurred once";
  EXPECT_EQ(top[0].key, 1);
  EXPECT_EQ(top[1].key, 2);
  // The standard deviation of a sample of 1,250 (625) is 35 (25), of which each stands for 32.
  EXPECT_NEAR(static_cast<double>(top[0].count), 40000, 4 * 35 * 32);
  EXPECT_NEAR(static_cast<double>(top[1].count), 20000, 4 * 25 * 32);
}

TEST(HotKeys, APeriodOfTheBatchesDoesNotHideKeys) {
  HotKeys hot;
  for (int call = 0; call < 1000;
       ++call) {  // each key has its place in a batch of the length of the mean stride
    std::vector<int64_t> keys;
    for (size_t i = 0; i < HotKeys::kStride; ++i) keys.push_back(static_cast<int64_t>(i));
    hot.Add(keys);
  }
  const auto all = hot.Top(HotKeys::kCounters);
  EXPECT_EQ(all.size(), HotKeys::kStride);
  for (const HotKeys::Count& key : all) EXPECT_NEAR(static_cast<double>(key.count), 1000, 4 * 32 * 6);
}

TEST(HotKeys, NoKeyIsHotIfAllOccurEquallyOften) {
  HotKeys hot;
  uint64_t random = 1;
  for (int call = 0; call < 1000; ++call) {
    std::vector<int64_t> keys;
    for (int i = 0; i < 1000; ++i) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      keys.push_back(static_cast<int64_t>(random >> 40));
    }
    hot.Add(keys);
  }
  for (const HotKeys::Count& key : hot.Top(8)) EXPECT_LE(static_cast<double>(key.count), 0.001 * hot.total());
}

TEST(HotKeys, HasNothingAtFirst) {
  HotKeys hot;
  EXPECT_TRUE(hot.Top(3).empty());
  hot.Add({});
  EXPECT_EQ(hot.total(), 0);
}

}  // namespace
}  // namespace cairn::ps
