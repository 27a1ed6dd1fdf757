#include "kernels/cuda/runtime/memory_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "common/core/random.h"

namespace cairn::kernels::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMebibyte = int64_t{1} << 20;

// Host memory, up to `capacity` bytes; records what was requested.
class HostSource final : public MemoryPool::Source {
 public:
  explicit HostSource(int64_t capacity = 4096 * kMebibyte) : capacity_(capacity) {}

  void* Take(int64_t bytes) override {
    if (bytes > capacity_) return nullptr;
    void* slab = std::aligned_alloc(MemoryPool::kAlignment, static_cast<size_t>(bytes));
    if (slab == nullptr) return nullptr;
    capacity_ -= bytes;
    slabs_[slab] = bytes;
    taken.push_back(bytes);
    return slab;
  }
  void Return(void* slab) override {
    const auto entry = slabs_.find(slab);
    ASSERT_NE(entry, slabs_.end()) << "no slab of ours, or returned twice";
    capacity_ += entry->second;
    slabs_.erase(entry);
    std::free(slab);
  }
  size_t held() const { return slabs_.size(); }

  std::vector<int64_t> taken;

 private:
  int64_t capacity_;
  std::map<void*, int64_t> slabs_;
};

MemoryPool::Options WithLimit(int64_t bytes, bool growth = false) {
  return {.device = "/gpu:0", .limit_bytes = bytes, .growth = growth};
}

char* Take(MemoryPool& pool, int64_t bytes) {
  return static_cast<char*>(pool.Allocate(bytes, "test").value());
}

TEST(MemoryPool, BlocksAreMultiplesOf256BytesAndAdjacent) {
  HostSource source;
  MemoryPool pool(source, WithLimit(64 * kMebibyte));
  char* const first = Take(pool, 1);
  char* const second = Take(pool, 257);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % MemoryPool::kAlignment, 0u);
  EXPECT_EQ(second - first, 256);
  EXPECT_EQ(pool.bytes_in_use(), 256 + 512);
  EXPECT_NE(Take(pool, 0), nullptr);
}

TEST(MemoryPool, WithoutGrowthASlabHasTheRequestedSizeInWholeGrains) {
  HostSource source;
  MemoryPool pool(source, WithLimit(64 * kMebibyte));
  Take(pool, 100);
  Take(pool, 5 * kMebibyte);
  EXPECT_THAT(source.taken, ElementsAre(2 * kMebibyte, 6 * kMebibyte));
  EXPECT_EQ(pool.bytes_taken(), 8 * kMebibyte);
}

TEST(MemoryPool, WithGrowthSlabsDouble) {
  HostSource source;
  MemoryPool pool(source, WithLimit(4096 * kMebibyte, true));
  Take(pool, 100);
  Take(pool, 65 * kMebibyte);
  Take(pool, 300 * kMebibyte);
  EXPECT_THAT(source.taken, ElementsAre(64 * kMebibyte, 128 * kMebibyte, 300 * kMebibyte));
}

TEST(MemoryPool, ASlabNearTheLimitTakesTheRest) {
  HostSource source;
  MemoryPool pool(source, WithLimit(3 * kMebibyte, true));
  Take(pool, 100);
  EXPECT_THAT(source.taken, ElementsAre(3 * kMebibyte));
}

TEST(MemoryPool, ASmallerSlabIsTakenIfTheSourceHasNoLargeOne) {
  HostSource source(5 * kMebibyte);
  MemoryPool pool(source, WithLimit(108 * kMebibyte, true));
  Take(pool, 3 * kMebibyte);
  EXPECT_THAT(source.taken, ElementsAre(4 * kMebibyte));
}

TEST(MemoryPool, TheSmallestSufficientBlockIsTaken) {
  HostSource source;
  MemoryPool pool(source, WithLimit(64 * kMebibyte));
  char* const large = Take(pool, 4096);
  Take(pool, 256);
  char* const small = Take(pool, 1024);
  Take(pool, 256);
  pool.Free(large);
  pool.Free(small);
  EXPECT_EQ(Take(pool, 1000), small);
  EXPECT_EQ(Take(pool, 1100), large);
}

TEST(MemoryPool, AdjacentFreedBlocksMergeInAnyOrder) {
  for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    HostSource source;
    MemoryPool pool(source, WithLimit(2 * kMebibyte));
    char* const blocks[] = {Take(pool, 256), Take(pool, 512), Take(pool, 2 * kMebibyte - 768)};
    for (const size_t i : order) pool.Free(blocks[i]);
    EXPECT_EQ(Take(pool, 2 * kMebibyte), blocks[0]);
  }
}

// Slabs that are adjacent, from one array.
class TouchingSlabs final : public MemoryPool::Source {
 public:
  TouchingSlabs() : memory_(16 * kMebibyte) {}
  void* Take(int64_t bytes) override {
    void* const slab = memory_.data() + used_;
    used_ += bytes;
    return slab;
  }
  void Return(void*) override { ++returned; }
  int returned = 0;

 private:
  std::vector<char> memory_;
  int64_t used_ = 0;
};

TEST(MemoryPool, BlocksOfDifferentSlabsDoNotMerge) {
  TouchingSlabs source;
  {
    MemoryPool pool(source, WithLimit(4 * kMebibyte));
    char* const first = Take(pool, 2 * kMebibyte);
    char* const second = Take(pool, 2 * kMebibyte);
    ASSERT_EQ(second, first + 2 * kMebibyte);
    pool.Free(second);
    pool.Free(first);
    // As one block this would be found, although the edge between the slabs is inside it.
    EXPECT_TRUE(pool.Allocate(3 * kMebibyte, "test").ok());
    EXPECT_EQ(source.returned, 2);
  }
  EXPECT_EQ(source.returned, 3);
}

TEST(MemoryPool, UnusedSlabsAreReturnedForALargerOne) {
  HostSource source;
  MemoryPool pool(source, WithLimit(8 * kMebibyte));
  char* const a = Take(pool, 4 * kMebibyte);
  char* const b = Take(pool, 4 * kMebibyte);
  pool.Free(a);
  pool.Free(b);
  Take(pool, 7 * kMebibyte);
  EXPECT_THAT(source.taken, ElementsAre(4 * kMebibyte, 4 * kMebibyte, 8 * kMebibyte));
  EXPECT_EQ(source.held(), 1u);
}

TEST(MemoryPool, ExhaustionNamesThePurposeTheSizesAndTheLimit) {
  HostSource source;
  MemoryPool pool(source, WithLimit(4 * kMebibyte));
  Take(pool, 1000);
  const auto status = pool.Allocate(3 * kMebibyte, "layer 'conv2d': output").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(
      status.message(),
      "layer 'conv2d': output on /gpu:0: 3145728 bytes requested, 1024 bytes in use, 2097152 taken from the "
      "device, the limit is 4194304 bytes");
  EXPECT_EQ(pool.bytes_in_use(), 1024);
  EXPECT_NE(Take(pool, 1000), nullptr) << "what fits is given all the same";
}

TEST(MemoryPool, ASizeBeyondAnyDeviceIsExhaustion) {
  HostSource source;
  MemoryPool pool(source, WithLimit(4 * kMebibyte));
  EXPECT_EQ(pool.Allocate(INT64_MAX, "test").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(source.taken, IsEmpty());
}

TEST(MemoryPool, ASourceWithoutMemoryIsExhaustion) {
  HostSource source(0);
  MemoryPool pool(source, WithLimit(4 * kMebibyte));
  const auto status = pool.Allocate(10, "test").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("test on /gpu:0: 10 bytes requested, 0 bytes in use"));
}

TEST(MemoryPool, ThePoolReturnsAllSlabsWhenItIsDestroyed) {
  HostSource source;
  {
    MemoryPool pool(source, WithLimit(64 * kMebibyte));
    Take(pool, 100);
    pool.Free(Take(pool, 10 * kMebibyte));
    EXPECT_EQ(source.held(), 2u);
  }
  EXPECT_EQ(source.held(), 0u);
}

// Each block is filled with its own byte, which any overlap would change.
TEST(MemoryPool, RandomBlocksNeverOverlapAndAreAllFreed) {
  for (const bool growth : {false, true}) {
    struct Held {
      char* block;
      int64_t bytes;
      char fill;
    };
    HostSource source;
    MemoryPool pool(source, WithLimit(8 * kMebibyte, growth));
    Random random(growth ? 2 : 1, "memory_pool");
    std::vector<Held> held;
    const auto release = [&](size_t i) {
      const std::string as_filled(static_cast<size_t>(held[i].bytes), held[i].fill);
      ASSERT_EQ(std::memcmp(held[i].block, as_filled.data(), as_filled.size()), 0);
      pool.Free(held[i].block);
      held[i] = held.back();
      held.pop_back();
    };
    for (int step = 0; step < 2000; ++step) {
      if (!held.empty() && random.NextUniform() < 0.48f) {
        release(random.NextBelow(static_cast<uint32_t>(held.size())));
      } else {
        // Mostly small blocks, and some that take a large part of everything.
        const int64_t bytes = random.NextBelow(random.NextUniform() < 0.9f ? 20'000 : 1'000'000);
        const auto block = pool.Allocate(bytes, "test");
        if (!block.ok()) continue;
        held.push_back({static_cast<char*>(*block), bytes, static_cast<char>(step)});
        std::memset(*block, static_cast<char>(step), static_cast<size_t>(bytes));
      }
      ASSERT_LE(pool.bytes_in_use(), pool.bytes_taken());
      ASSERT_LE(pool.bytes_taken(), 8 * kMebibyte);
    }
    while (!held.empty()) release(held.size() - 1);
    EXPECT_EQ(pool.bytes_in_use(), 0);
    EXPECT_TRUE(pool.Allocate(8 * kMebibyte, "all of it").ok()) << "freed blocks have become one again";
  }
}

}  // namespace
}  // namespace cairn::kernels::cuda
