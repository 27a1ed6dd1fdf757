#include "embedding/store/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/unit/embedding/store/limited_memory.h"

namespace cairn::embedding {
namespace {

TEST(PagePool, ChunksAreAlignedZeroedAndDistinct) {
  PagePool pool(nullptr);
  std::set<char*> chunks;
  for (int i = 0; i < 5; ++i) {
    char* const chunk = pool.TakeChunk().value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(chunk) % PagePool::kChunkBytes, 0u);
    EXPECT_TRUE(std::all_of(chunk, chunk + PagePool::kChunkBytes, [](char c) { return c == 0; }));
    std::fill_n(chunk, PagePool::kChunkBytes, '\1');
    chunks.insert(chunk);
  }
  EXPECT_EQ(chunks.size(), 5u);
}

TEST(PagePool, AllMemoryIsChargedAndGivenBackAtTheEnd) {
  LimitedMemory memory(PagePool::kChunkBytes + 1000);
  {
    PagePool pool(&memory);
    ASSERT_TRUE(pool.TakeChunk().ok());
    auto buffer = pool.TakeBuffer(400);
    ASSERT_TRUE(buffer.ok());
    ASSERT_TRUE(pool.Charge(16).ok());
    EXPECT_EQ(memory.used(), PagePool::kChunkBytes + 416);
    pool.FreeBuffer(*std::move(buffer));
    EXPECT_EQ(memory.used(), PagePool::kChunkBytes + 16);
  }
  EXPECT_EQ(memory.used(), 0);
}

TEST(PagePool, RefusedMemoryIsNotCharged) {
  LimitedMemory memory(PagePool::kChunkBytes);
  PagePool pool(&memory);
  ASSERT_TRUE(pool.TakeChunk().ok());
  EXPECT_EQ(pool.TakeChunk().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.TakeBuffer(4).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(memory.used(), PagePool::kChunkBytes);
  memory.set_limit(2 * PagePool::kChunkBytes);
  EXPECT_TRUE(pool.TakeChunk().ok());
}

}  // namespace
}  // namespace cairn::embedding
