#include "embedding/store/row_index.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "embedding/keys/key_hash.h"
#include "tests/unit/embedding/store/limited_memory.h"

namespace cairn::embedding {
namespace {

// An index with rows of one float.
class RowIndexTest : public testing::Test {
 protected:
  void Insert(RowIndex& index, int64_t key) {
    const uint64_t hash = HashKey(key);
    ASSERT_EQ(index.Find(hash, key), RowIndex::kNone) << key;
    ASSERT_TRUE(rows_.MakeRoom().ok());
    ASSERT_TRUE(index.MakeRoom(hash).ok());
    row_of_[key] = rows_.Add(key);
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
    for (const auto& [key, row] : row_of_) ASSERT_EQ(index.Find(HashKey(key), key), row) << key;
  }

  PagePool pool_{nullptr};
  RowArena rows_{1, pool_};
  std::map<int64_t, RowRef> row_of_;
};

TEST_F(RowIndexTest, KeysAreFoundThroughGrowthAndSplits) {
  RowIndex index({}, rows_, pool_);
  InsertKeysOf(index, {}, 100'000);
  ExpectAllFound(index);
  for (int64_t key = -1000; key < 0; ++key) ASSERT_EQ(index.Find(HashKey(key), key), RowIndex::kNone);
}

TEST_F(RowIndexTest, ARangeOfBucketsIsSplitLikeAWholeTable) {
  for (const BucketRange buckets : {BucketRange{0, 256}, BucketRange{65'300, 65'536}, BucketRange{3, 46}}) {
    row_of_.clear();
    RowIndex index(buckets, rows_, pool_);
    InsertKeysOf(index, buckets, 30'000);
    ExpectAllFound(index);
    EXPECT_LE(index.bytes(), int64_t{2} * PagePool::kChunkBytes) << "a split separates keys at once";
  }
}

// The key that has this hash: the inverse of HashKey().
int64_t KeyOfHash(uint64_t hash) {
  hash = (hash ^ hash >> 31 ^ hash >> 62) * 0x319642b2d24d8ec3;
  hash = (hash ^ hash >> 27 ^ hash >> 54) * 0x96de1b173f119089;
  return static_cast<int64_t>((hash ^ hash >> 30 ^ hash >> 60) - kSplitMixGamma);
}

TEST_F(RowIndexTest, ManyKeysOfOneBucketAreFound) {
  for (const BucketRange buckets : {BucketRange{12'345, 12'346}, BucketRange{}}) {
    row_of_.clear();
    RowIndex index(buckets, rows_, pool_);
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
  RowIndex index({}, rows_, pool_);
  for (uint64_t i = 0; i < 3000; ++i) Insert(index, KeyOfHash(i << 32 | 5));
  ExpectAllFound(index);
  for (uint64_t i = 0; i < 3000; i += 2)
    ASSERT_NE(index.Erase(i << 32 | 5, KeyOfHash(i << 32 | 5)), RowIndex::kNone);
  for (uint64_t i = 0; i < 3000; ++i)
    ASSERT_EQ(index.Find(i << 32 | 5, KeyOfHash(i << 32 | 5)) == RowIndex::kNone, i % 2 == 0);
}

TEST_F(RowIndexTest, ErasedKeysAreNotFoundAndLeaveNothingBehind) {
  RowIndex index({}, rows_, pool_);
  InsertKeysOf(index, {}, 20'000);
  const int64_t bytes = index.bytes();
  for (int round = 0; round < 20; ++round) {
    std::vector<int64_t> erased;
    for (const auto& [key, row] : row_of_) {
      if (key % 3 == round % 3) erased.push_back(key);
    }
    for (const int64_t key : erased) {
      ASSERT_EQ(index.Erase(HashKey(key), key), row_of_[key]);
      ASSERT_EQ(index.Find(HashKey(key), key), RowIndex::kNone);
      ASSERT_EQ(index.Erase(HashKey(key), key), RowIndex::kNone);
      rows_.Free(row_of_[key]);
      row_of_.erase(key);
    }
    ExpectAllFound(index);
    for (const int64_t key : erased) Insert(index, key);
  }
  EXPECT_EQ(index.bytes(), bytes) << "removals and insertions of the same keys need no growth";
}

TEST_F(RowIndexTest, SegmentsAreVisitedByRisingBucketsAndCoverTheRange) {
  const BucketRange all = {1000, 3000};
  RowIndex index(all, rows_, pool_);
  InsertKeysOf(index, all, 60'000);
  for (const BucketRange range : {all, BucketRange{1001, 2999}, BucketRange{1500, 1501}}) {
    int next = range.begin;
    int64_t visited = 0, expected = 0;
    index.VisitSegments(range, [&](BucketRange covered, const std::vector<RowRef>& rows) {
      if (next == range.begin)
        EXPECT_LE(covered.begin, next);
      else
        EXPECT_EQ(covered.begin, next);
      next = covered.end;
      for (const RowRef row : rows) {
        const int bucket = BucketOf(rows_.KeyOf(row));
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
  RowIndex index({}, rows_, pool);
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
