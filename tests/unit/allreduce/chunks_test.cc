#include "worker/peer/chunks.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::allreduce {
namespace {

TEST(ChunkPlan, EveryElementIsInOneChunk) {
  for (const int workers : {1, 2, 3, 4, 7}) {
    for (const int64_t size : {0, 1, 2, 5, 12, 100, 4097, 100000}) {
      SCOPED_TRACE(testing::Message() << workers << " workers, " << size << " elements");
      const ChunkPlan plan = ChunkPlan::Make(size, workers, /*most_chunk=*/16);
      std::vector<int> seen(static_cast<size_t>(size));
      for (const Chunk& chunk : plan.chunks) {
        EXPECT_LE(chunk.size(), 16);
        for (int64_t i = chunk.begin; i < chunk.end; ++i) ++seen[static_cast<size_t>(i)];
      }
      EXPECT_THAT(seen, testing::Each(1));
      EXPECT_EQ(plan.chunks.size() % static_cast<size_t>(workers), 0u);
    }
  }
}

TEST(ChunkPlan, TheFirstBucketIsTheEndOfTheGradient) {
  const ChunkPlan plan = ChunkPlan::Make(100, 2, /*most_chunk=*/16);
  ASSERT_EQ(plan.buckets(), 4);
  EXPECT_EQ(plan.bucket_end(0), 100);
  EXPECT_EQ(plan.bucket_begin(0), 68);
  EXPECT_EQ(plan.bucket_begin(3), 0);
}

TEST(ChunkPlan, BucketsOfALargeGradientConsistOfFullChunks) {
  const ChunkPlan plan = ChunkPlan::Make(int64_t{16} << 20, 4);
  EXPECT_EQ(plan.chunks[0].size(), kMaxChunkFloats);
  EXPECT_EQ(plan.buckets(), 64);
}

TEST(ChunkPlan, ASmallGradientIsNotCutIntoTinyChunks) {
  EXPECT_EQ(ChunkPlan::Make(5000, 2).buckets(), 1);
  EXPECT_EQ(ChunkPlan::Make(100000, 2).buckets(), 4);
}

}  // namespace
}  // namespace cairn::allreduce
