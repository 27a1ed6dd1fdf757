#include "embedding/store/row_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "embedding/keys/key_hash.h"
#include "tests/unit/embedding/store/limited_memory.h"

namespace cairn::embedding {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RowStore MakeStore(RowShape shape, MemorySource* memory = nullptr) {
  return RowStore({.table = "ads", .shape = shape, .buckets = {}, .memory = memory});
}

std::vector<float*> Find(const RowStore& store, const std::vector<int64_t>& keys) {
  std::vector<float*> rows(keys.size());
  store.Find(keys, absl::MakeSpan(rows));
  return rows;
}

// The rows of keys that are inserted where they are missing; the first float of a new row is set to its key.
std::vector<float*> Insert(RowStore& store, const std::vector<int64_t>& keys) {
  std::vector<float*> rows(keys.size());
  std::vector<int32_t> inserted;
  EXPECT_TRUE(store.FindOrInsert(keys, absl::MakeSpan(rows), &inserted).ok());
  for (const int32_t i : inserted) rows[i][0] = static_cast<float>(keys[i]);
  return rows;
}

std::vector<std::pair<int64_t, float>> Sorted(const RowStore& store, BucketRange range) {
  std::vector<std::pair<int64_t, float>> sorted;
  store.VisitSorted(range, [&](absl::Span<const int64_t> keys, absl::Span<const float* const> rows) {
    for (size_t i = 0; i < keys.size(); ++i) sorted.emplace_back(keys[i], rows[i][0]);
  });
  return sorted;
}

TEST(RowStore, EveryInt64IsALegalKey) {
  RowStore store = MakeStore({.dim = 2, .slots = 1});
  const std::vector<int64_t> keys = {0, -1, 1, std::numeric_limits<int64_t>::min(),
                                     std::numeric_limits<int64_t>::max()};
  EXPECT_THAT(Find(store, keys), testing::Each(nullptr));
  const std::vector<float*> rows = Insert(store, keys);
  EXPECT_EQ(Find(store, keys), rows);
  EXPECT_EQ(store.size(), 5);
  EXPECT_EQ(std::set<float*>(rows.begin(), rows.end()).size(), 5u);
}

TEST(RowStore, AnEmptyBatchChangesNothing) {
  RowStore store = MakeStore({.dim = 1});
  EXPECT_THAT(Insert(store, {}), IsEmpty());
  EXPECT_EQ(store.Erase({}), 0);
  EXPECT_EQ(store.size(), 0);
  EXPECT_THAT(Sorted(store, {}), IsEmpty());
}

TEST(RowStore, NewRowsAreZerosAndTheFirstOfRepeatedKeysIsInserted) {
  RowStore store = MakeStore({.dim = 3, .slots = 2});
  Insert(store, {8});
  const std::vector<int64_t> keys = {7, 8, 9, 7, 9, 7};
  std::vector<float*> rows(keys.size());
  std::vector<int32_t> inserted = {99};
  ASSERT_TRUE(store.FindOrInsert(keys, absl::MakeSpan(rows), &inserted).ok());
  EXPECT_THAT(inserted, ElementsAre(0, 2));
  EXPECT_EQ(rows[3], rows[0]);
  EXPECT_EQ(rows[5], rows[0]);
  EXPECT_EQ(rows[4], rows[2]);
  EXPECT_THAT(absl::MakeSpan(rows[0], 5), testing::Each(0.f));
  EXPECT_EQ(rows[1][0], 8);
}

// Random batches of insertions, searches and removals against std::unordered_map, whose values are the pointers.
void CheckAgainstAMap(const std::vector<int64_t>& keys, int rounds) {
  RowStore store = MakeStore({.dim = 3});
  std::unordered_map<int64_t, float*> expected;
  std::mt19937_64 random(1);
  for (int round = 0; round < rounds; ++round) {
    std::vector<int64_t> batch(1 + random() % 3000);
    for (int64_t& key : batch) key = keys[random() % keys.size()];
    std::vector<float*> rows(batch.size());
    if (random() % 3 == 0) {
      int64_t erased = 0;
      for (const int64_t key : batch) erased += static_cast<int64_t>(expected.erase(key));
      ASSERT_EQ(store.Erase(batch), erased);
      ASSERT_THAT(Find(store, batch), testing::Each(nullptr));
    } else {
      std::vector<int32_t> inserted;
      ASSERT_TRUE(store.FindOrInsert(batch, absl::MakeSpan(rows), &inserted).ok());
      for (const int32_t i : inserted) {
        ASSERT_TRUE(expected.emplace(batch[i], rows[i]).second);
        ASSERT_EQ(std::count(rows[i], rows[i] + 3, 0.f), 3);
        std::fill(rows[i], rows[i] + 3, static_cast<float>(batch[i] % 1000));
      }
      for (size_t i = 0; i < batch.size(); ++i) {
        ASSERT_EQ(rows[i], expected.at(batch[i])) << "rows never move";
        ASSERT_EQ(rows[i][2], static_cast<float>(batch[i] % 1000));
      }
    }
    ASSERT_EQ(store.size(), static_cast<int64_t>(expected.size()));
  }
  const std::vector<float*> rows = Find(store, keys);
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto found = expected.find(keys[i]);
    ASSERT_EQ(rows[i], found == expected.end() ? nullptr : found->second);
  }
}

TEST(RowStore, AgreesWithAMapForRandomKeys) {
  std::mt19937_64 random(2);
  std::vector<int64_t> keys(120'000);
  for (int64_t& key : keys) key = static_cast<int64_t>(random());
  CheckAgainstAMap(keys, 300);
}

TEST(RowStore, AgreesWithAMapForSequentialKeys) {
  std::vector<int64_t> keys(60'000);
  std::iota(keys.begin(), keys.end(), -30'000);
  CheckAgainstAMap(keys, 150);
}

TEST(RowStore, AgreesWithAMapForMultiplesOfPowersOfTwo) {
  for (const int shift : {4, 16, 33, 48}) {
    std::vector<int64_t> keys(1 << 15);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i << shift);
    CheckAgainstAMap(keys, 60);
  }
}

TEST(RowStore, AgreesWithAMapForKeysOfOneBucket) {
  std::vector<int64_t> keys;
  for (int64_t key = 0; keys.size() < 400; ++key) {
    if (BucketOf(key) == 77) keys.push_back(key);
  }
  CheckAgainstAMap(keys, 100);
}

TEST(RowStore, RowsStayInPlaceWhileTheStoreGrows) {
  RowStore store = MakeStore({.dim = 4});
  const std::vector<int64_t> first = {5, 6, 7};
  const std::vector<float*> rows = Insert(store, first);
  std::vector<int64_t> more(300'000);
  std::iota(more.begin(), more.end(), 100);
  Insert(store, more);
  EXPECT_EQ(Find(store, first), rows);
  store.Erase(more);
  EXPECT_EQ(Find(store, first), rows);
  EXPECT_THAT(absl::MakeSpan(rows[0], 4), ElementsAre(5, 0, 0, 0));
}

TEST(RowStore, MemoryOfErasedRowsIsUsedAgain) {
  RowStore store = MakeStore({.dim = 4});
  std::vector<int64_t> keys(50'000);
  std::iota(keys.begin(), keys.end(), 0);
  Insert(store, keys);
  const RowStore::MemoryUse before = store.memory();
  for (int round = 1; round < 5; ++round) {
    EXPECT_EQ(store.Erase(keys), 50'000);
    for (int64_t& key : keys) key += 50'000;
    Insert(store, keys);
  }
  EXPECT_EQ(store.memory().rows, before.rows);
  EXPECT_LE(store.memory().index, 2 * before.index);
}

TEST(RowStore, TheOrderOfAVisitIsThatOfBucketAndKeyWhateverTheHistory) {
  std::vector<int64_t> keys(30'000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i * 7919) - 50'000'000;
  std::vector<int64_t> expected = keys;
  std::sort(expected.begin(), expected.end(),
            [](int64_t a, int64_t b) { return std::pair(BucketOf(a), a) < std::pair(BucketOf(b), b); });

  RowStore one = MakeStore({.dim = 1}), other = MakeStore({.dim = 1});
  Insert(one, keys);
  std::shuffle(keys.begin(), keys.end(), std::mt19937(3));
  std::vector<int64_t> extra(100'000);
  std::iota(extra.begin(), extra.end(), 0);
  Insert(other, extra);
  other.Erase(extra);
  Insert(other, keys);

  const auto visited = Sorted(one, {});
  ASSERT_EQ(visited.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(visited[i].first, expected[i]);
    ASSERT_EQ(visited[i].second, static_cast<float>(expected[i]));
  }
  EXPECT_EQ(Sorted(other, {}), visited);
}

TEST(RowStore, RangesOfBucketsPartitionTheRows) {
  RowStore store = MakeStore({.dim = 1});
  std::vector<int64_t> keys(40'000);
  std::iota(keys.begin(), keys.end(), 0);
  Insert(store, keys);
  const auto all = Sorted(store, {});
  std::vector<std::pair<int64_t, float>> joined;
  const std::vector<int> bounds = {0, 1, 777, 778, 20'000, 65'535, 65'536};
  for (size_t i = 1; i < bounds.size(); ++i) {
    const BucketRange range = {bounds[i - 1], bounds[i]};
    const auto part = Sorted(store, range);
    joined.insert(joined.end(), part.begin(), part.end());
  }
  EXPECT_EQ(joined, all);
  EXPECT_EQ(static_cast<int64_t>(all.size()), store.size());
  EXPECT_TRUE(Sorted(store, {5, 5}).empty());
}

TEST(RowStore, AStoreOfSomeBucketsHoldsTheirRows) {
  const BucketRange buckets = {40'000, 40'100};
  RowStore store({.table = "ads", .shape = {.dim = 1}, .buckets = buckets});
  std::vector<int64_t> keys;
  for (int64_t key = 0; keys.size() < 20'000; ++key) {
    if (buckets.Contains(BucketOf(key))) keys.push_back(key);
  }
  Insert(store, keys);
  EXPECT_THAT(Find(store, {keys[0], keys[19'999]}), testing::Each(testing::NotNull()));
  EXPECT_EQ(Sorted(store, buckets).size(), 20'000u);
  int64_t other = 0;
  while (buckets.Contains(BucketOf(other))) ++other;
  EXPECT_THAT(Find(store, {other}), ElementsAre(nullptr));
}

TEST(RowStore, ARefusalOfMemoryNamesTheTableAndLeavesTheRowsAsTheyWere) {
  LimitedMemory memory(int64_t{1} << 30);
  RowStore store = MakeStore({.dim = 16, .slots = 1}, &memory);
  std::vector<int64_t> keys(10'000);
  std::iota(keys.begin(), keys.end(), 0);
  Insert(store, keys);
  const auto before = Sorted(store, {});
  memory.set_limit(memory.used());

  std::vector<int64_t> more(60'000);
  std::iota(more.begin(), more.end(), 5000);
  std::vector<float*> rows(more.size());
  std::vector<int32_t> inserted;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const absl::Status status = store.FindOrInsert(more, absl::MakeSpan(rows), &inserted);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("table 'ads', 10000 rows: "));
    EXPECT_THAT(inserted, IsEmpty());
    EXPECT_EQ(store.size(), 10'000);
    EXPECT_EQ(Sorted(store, {}), before);
    EXPECT_EQ(store.memory().rows + store.memory().index, memory.used());
  }
  EXPECT_THAT(Find(store, {15'000, 64'999}), testing::Each(nullptr));

  memory.set_limit(int64_t{1} << 30);
  Insert(store, more);
  EXPECT_EQ(store.size(), 65'000);
}

TEST(RowStore, AllMemoryIsChargedAndGivenBack) {
  LimitedMemory memory(int64_t{1} << 40);
  {
    RowStore store = MakeStore({.dim = 8, .slots = 1}, &memory);
    std::vector<int64_t> keys(300'000);
    std::iota(keys.begin(), keys.end(), 0);
    Insert(store, keys);
    EXPECT_EQ(store.memory().rows + store.memory().index, memory.used());
    const double per_row = static_cast<double>(memory.used()) / 300'000;
    EXPECT_LE(per_row, 1.4 * (8 + 4 * 9 + 8));
  }
  EXPECT_EQ(memory.used(), 0);
}

TEST(RowStore, SearchesMayRunConcurrently) {
  RowStore store = MakeStore({.dim = 1});
  std::vector<int64_t> keys(20'000);
  std::iota(keys.begin(), keys.end(), 0);
  const std::vector<float*> rows = Insert(store, keys);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(Find(store, keys), rows);
      EXPECT_EQ(Sorted(store, {}).size(), 20'000u);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RowStore, TheLargestRowsWork) {
  RowStore store = MakeStore({.dim = RowStore::kMaxDim, .slots = 3 * RowStore::kMaxDim});
  std::vector<int64_t> keys(2000);
  std::iota(keys.begin(), keys.end(), 0);
  const std::vector<float*> rows = Insert(store, keys);
  for (float* const row : rows) row[4 * RowStore::kMaxDim - 1] = row[0] + 1;
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(rows[i][0], static_cast<float>(i));
    ASSERT_EQ(rows[i][4 * RowStore::kMaxDim - 1], static_cast<float>(i + 1));
  }
}

}  // namespace
}  // namespace cairn::embedding
