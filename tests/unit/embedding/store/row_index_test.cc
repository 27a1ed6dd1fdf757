#include "embedding/store/row_index.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "embedding/keys/key_hash.h"
#include "tests/unit/embedding/store/limited_memory.h"

namespace cairn::embedding {
namespace {

constexpr double kMaxLoad = 0.8;

// An index with rows of one float.
class RowIndexTest : public testing::Test {
 protected:
  void Insert(RowIndex& index, int64_t key) {
    const uint64_t hash = HashKey(key);
    ASSERT_EQ(index.Find(hash), kNoRow) << key;
    ASSERT_TRUE(rows_.MakeRoom().ok());
    ASSERT_TRUE(index.MakeRoom(hash).ok());
    row_of_[key] = rows_.Add();
    index.Insert(hash, row_of_[key]);
  }
  // Those that belong to `buckets`, out of the keys 0, 1, ...
  void InsertKeysOf(RowIndex& index, BucketRange buckets, int count) {
    for (int64_t key = 0; count > 0; ++key) {
      if (!buckets.Contains(BucketOf(key))) continue;
      Insert(index, key);
      --count;
    }
  }
  void ExpectAllFound(const RowIndex& index) {
    EXPECT_EQ(index.size(), static_cast<int64_t>(row_of_.size()));
    for (const auto& [key, row] : row_of_) ASSERT_EQ(index.Find(HashKey(key)), row) << key;
  }

  PagePool pool_{nullptr};
  RowArena rows_{1, pool_};
  std::map<int64_t, RowRef> row_of_;
};

TEST_F(RowIndexTest, KeysAreFoundThroughGrowthAndSplits) {
  RowIndex index({}, kMaxLoad, pool_);
  InsertKeysOf(index, {}, 100'000);
  ExpectAllFound(index);
  for (int64_t key = -1000; key < 0; ++key) ASSERT_EQ(index.Find(HashKey(key)), kNoRow);
}

TEST_F(RowIndexTest, ARangeOfBucketsIsSplitLikeAWholeTable) {
  for (const BucketRange buckets : {BucketRange{0, 256}, BucketRange{65'300, 65'536}, BucketRange{3, 46}}) {
    row_of_.clear();
    RowIndex index(buckets, kMaxLoad, pool_);
    InsertKeysOf(index, buckets, 30'000);
    ExpectAllFound(index);
    EXPECT_LE(index.bytes(), int64_t{2} * PagePool::kChunkBytes) << "a split separates keys at once";
  }
}

TEST_F(RowIndexTest, ManyKeysOfOneBucketAreFound) {
  for (const BucketRange buckets : {BucketRange{12'345, 12'346}, BucketRange{}}) {
    row_of_.clear();
    RowIndex index(buckets, kMaxLoad, pool_);
    for (uint64_t i = 0; i < 50'000; ++i) {
      const uint64_t hash = uint64_t{12'345} << 48 | (i * 0x9e3779b97f4a7c15 & 0xffffffffffff);
      ASSERT_EQ(HashKey(KeyOfHash(hash)), hash);
      Insert(index, KeyOfHash(hash));
    }
    ExpectAllFound(index);
    EXPECT_LE(index.bytes(), int64_t{5} << 20);
  }
}

TEST_F(RowIndexTest, KeysThatAllShareALineAreFound) {
  RowIndex index({}, kMaxLoad, pool_);
  for (uint64_t i = 0; i < 3000; ++i) Insert(index, KeyOfHash(i << 32 | 5));
  ExpectAllFound(index);
  for (uint64_t i = 0; i < 3000; i += 2) ASSERT_NE(index.Erase(i << 32 | 5), kNoRow);
  for (uint64_t i = 0; i < 3000; ++i) ASSERT_EQ(index.Find(i << 32 | 5) == kNoRow, i % 2 == 0);
}

TEST_F(RowIndexTest, ErasedKeysAreNotFoundAndLeaveNothingBehind) {
  RowIndex index({}, kMaxLoad, pool_);
  InsertKeysOf(index, {}, 20'000);
  const int64_t bytes = index.bytes();
  for (int round = 0; round < 20; ++round) {
    std::vector<int64_t> erased;
    for (const auto& [key, row] : row_of_) {
      if (key % 3 == round % 3) erased.push_back(key);
    }
    for (const int64_t key : erased) {
      ASSERT_EQ(index.Erase(HashKey(key)), row_of_[key]);
      ASSERT_EQ(index.Find(HashKey(key)), kNoRow);
      ASSERT_EQ(index.Erase(HashKey(key)), kNoRow);
      rows_.Free(row_of_[key]);
      row_of_.erase(key);
    }
    ExpectAllFound(index);
    for (const int64_t key : erased) Insert(index, key);
  }
  EXPECT_EQ(index.bytes(), bytes) << "removals and insertions of the same keys need no growth";
}

TEST_F(RowIndexTest, TheLoadStaysWithinNarrowBoundsWhileTheIndexGrows) {
  RowIndex index({}, kMaxLoad, pool_);
  for (int64_t key = 0; key < 2'000'000; ++key) {
    Insert(index, key);
    if (key < 500'000 || key % 50'000 != 0) continue;
    const double load = static_cast<double>(index.size() * 64) / static_cast<double>(5 * index.bytes());
    EXPECT_GE(load, 0.55) << key;  // if segments only doubled, it would fall to 0.4
    EXPECT_LE(load, kMaxLoad) << key;
  }
}

TEST_F(RowIndexTest, SegmentsAreVisitedByRisingBucketsAndCoverTheRange) {
  const BucketRange all = {1000, 3000};
  RowIndex index(all, kMaxLoad, pool_);
  InsertKeysOf(index, all, 60'000);
  for (const BucketRange range : {all, BucketRange{1001, 2999}, BucketRange{1500, 1501}}) {
    int next = range.begin;
    int64_t visited = 0, expected = 0;
    index.VisitSegments(range, [&](BucketRange covered, const std::vector<RowIndex::Entry>& entries) {
      if (next == range.begin)
        EXPECT_LE(covered.begin, next);
      else
        EXPECT_EQ(covered.begin, next);
      next = covered.end;
      for (const RowIndex::Entry& entry : entries) {
        const int bucket = BucketOfHash(entry.hash);
        EXPECT_EQ(row_of_[KeyOfHash(entry.hash)], entry.row);
        EXPECT_TRUE(covered.Contains(bucket));
        if (range.Contains(bucket)) ++visited;
      }
    });
    EXPECT_GE(next, range.end);
    for (const auto& [key, row] : row_of_) expected += range.Contains(BucketOf(key)) ? 1 : 0;
    EXPECT_EQ(visited, expected);
  }
}

TEST_F(RowIndexTest, AGrowthThatHasNoMemoryChangesNothing) {
  LimitedMemory memory(0);
  PagePool pool(&memory);
  RowIndex index({}, kMaxLoad, pool);
  int64_t refused = 0;
  for (int64_t key = 0; key < 60'000; ++key) {
    const uint64_t hash = HashKey(key);
    if (const absl::Status status = index.MakeRoom(hash); !status.ok()) {
      ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      ASSERT_EQ(index.bytes(), memory.used());
      ++refused;
      ExpectAllFound(index);
      for (int64_t more = 64; !index.MakeRoom(hash).ok(); more *= 2) memory.set_limit(memory.used() + more);
    }
    Insert(index, key);
  }
  EXPECT_GT(refused, 8);
  EXPECT_EQ(index.bytes(), memory.used());
}

}  // namespace
}  // namespace cairn::embedding
