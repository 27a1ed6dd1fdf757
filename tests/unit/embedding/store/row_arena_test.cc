#include "embedding/store/row_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/unit/embedding/store/limited_memory.h"

namespace cairn::embedding {
namespace {

TEST(RowArena, NewRowsAreZerosAndDoNotOverlap) {
  for (const int64_t floats : {int64_t{1}, int64_t{9}, int64_t{16}, int64_t{3000}, RowArena::kMaxFloats}) {
    PagePool pool(nullptr);
    RowArena arena(floats, pool);
    const int rows = floats > 1000 ? 40 : 200'000;
    std::vector<RowRef> refs;
    for (int i = 0; i < rows; ++i) {
      ASSERT_TRUE(arena.MakeRoom().ok());
      refs.push_back(arena.Add());
      float* const row = arena.FloatsOf(refs.back());
      ASSERT_TRUE(std::all_of(row, row + floats, [](float value) { return value == 0; })) << i;
      std::fill(row, row + floats, static_cast<float>(i));
    }
    for (int i = 0; i < rows; ++i) {
      const float* const row = arena.FloatsOf(refs[i]);
      ASSERT_TRUE(
          std::all_of(row, row + floats, [i](float value) { return value == static_cast<float>(i); }));
    }
  }
}

TEST(RowArena, ARowOf16FloatsIsACacheLine) {
  PagePool pool(nullptr);
  RowArena arena(16, pool);
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(arena.MakeRoom().ok());
    ASSERT_EQ(reinterpret_cast<uintptr_t>(arena.FloatsOf(arena.Add())) % 64, 0u);
  }
}

TEST(RowArena, FreedRowsAreUsedAgainAsZeros) {
  PagePool pool(nullptr);
  RowArena arena(3, pool);
  std::vector<RowRef> refs;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(arena.MakeRoom().ok());
    refs.push_back(arena.Add());
    std::fill_n(arena.FloatsOf(refs.back()), 3, 1.f);
  }
  const int64_t bytes = arena.bytes();
  for (int round = 0; round < 3; ++round) {
    for (const RowRef row : refs) arena.Free(row);
    for (RowRef& row : refs) {
      ASSERT_TRUE(arena.MakeRoom().ok());
      row = arena.Add();
      ASSERT_EQ(std::count(arena.FloatsOf(row), arena.FloatsOf(row) + 3, 0.f), 3);
      std::fill_n(arena.FloatsOf(row), 3, 2.f);
    }
    EXPECT_EQ(arena.bytes(), bytes);
  }
  std::sort(refs.begin(), refs.end());
  EXPECT_EQ(std::unique(refs.begin(), refs.end()), refs.end());
}

TEST(RowArena, BlocksGrowFrom4KiBTo2MiB) {
  LimitedMemory memory(int64_t{1} << 40);
  PagePool pool(&memory);
  RowArena arena(16, pool);
  EXPECT_EQ(arena.bytes(), 0);
  int64_t largest = 0;
  for (int i = 0, before = 0; i < 100'000; ++i, before = static_cast<int>(arena.bytes())) {
    ASSERT_TRUE(arena.MakeRoom().ok());
    arena.Add();
    largest = std::max(largest, arena.bytes() - before);
    ASSERT_LE(arena.bytes(), 4096 + int64_t{2} * (i + 1) * 64);
  }
  EXPECT_EQ(largest, PagePool::kChunkBytes);
  EXPECT_EQ(arena.bytes(), memory.used());
}

}  // namespace
}  // namespace cairn::embedding
