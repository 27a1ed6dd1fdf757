#include "ps/table/accumulator.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class AccumulatorTest : public testing::Test {
 protected:
  optim::BufferPool pool_{/*size=*/10, /*max_idle=*/2};
  Accumulator accumulator_{pool_};
};

TEST_F(AccumulatorTest, ChunksInAnyOrderMakeTheWhole) {
  EXPECT_EQ(accumulator_.Add(ChunkAt(6), Bytes({6, 7, 8, 9})), absl::OkStatus());
  EXPECT_EQ(accumulator_.Add(ChunkAt(0), Bytes({0, 1})), absl::OkStatus());
  EXPECT_FALSE(accumulator_.complete());
  EXPECT_EQ(accumulator_.Add(ChunkAt(2), Bytes({2, 3, 4, 5})), absl::OkStatus());
  EXPECT_TRUE(accumulator_.complete());
  EXPECT_THAT(accumulator_.runs(), ElementsAre(Pair(0, 10)));
  EXPECT_THAT(accumulator_.Take().buffer()->span(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(AccumulatorTest, RunsThatTouchBecomeOne) {
  ASSERT_TRUE(accumulator_.Add(ChunkAt(0), Bytes({0})).ok());
  ASSERT_TRUE(accumulator_.Add(ChunkAt(2), Bytes({2})).ok());
  ASSERT_TRUE(accumulator_.Add(ChunkAt(5), Bytes({5})).ok());
  EXPECT_THAT(accumulator_.runs(), ElementsAre(Pair(0, 1), Pair(2, 3), Pair(5, 6)));
  ASSERT_TRUE(accumulator_.Add(ChunkAt(1), Bytes({1})).ok());
  EXPECT_THAT(accumulator_.runs(), ElementsAre(Pair(0, 3), Pair(5, 6)));
  EXPECT_EQ(accumulator_.received(), 4);
}

TEST_F(AccumulatorTest, RepeatedElementsAreRefusedWithoutEffect) {
  ASSERT_TRUE(accumulator_.Add(ChunkAt(3), Bytes({3, 4, 5})).ok());
  for (int64_t offset : {1, 2, 3, 4, 5}) {
    EXPECT_EQ(accumulator_.Add(ChunkAt(offset), Bytes({-1, -1, -1})).code(),
              absl::StatusCode::kInvalidArgument)
        << offset;
  }
  EXPECT_EQ(accumulator_.received(), 3);
  EXPECT_THAT(accumulator_.Take().buffer()->span().subspan(3, 3), ElementsAre(3, 4, 5));
}

TEST_F(AccumulatorTest, ElementsReceivedInPlaceAreNotCopied) {
  const absl::Span<float> destination = accumulator_.DestinationFor(ChunkAt(3), 2);
  ASSERT_EQ(destination.size(), 2u);
  destination[0] = 3, destination[1] = 4;
  const absl::Span<const char> run(reinterpret_cast<const char*>(destination.data()), 2 * sizeof(float));
  EXPECT_EQ(accumulator_.received(), 0);
  ASSERT_TRUE(accumulator_.Add(ChunkAt(3), {&run, 1}).ok());
  EXPECT_THAT(accumulator_.runs(), ElementsAre(Pair(3, 5)));
  EXPECT_THAT(accumulator_.Take().buffer()->span().subspan(3, 2), ElementsAre(3, 4));
}

TEST_F(AccumulatorTest, ChunksThatWouldBeRefusedHaveNoDestination) {
  ASSERT_TRUE(accumulator_.Add(ChunkAt(3), Bytes({3, 4, 5})).ok());
  for (int64_t offset : {-1, 2, 3, 5, 9, 10})
    EXPECT_TRUE(accumulator_.DestinationFor(ChunkAt(offset), 2).empty());
  v1::Chunk encoded = ChunkAt(0);
  encoded.set_encoding(v1::ENCODING_BFLOAT16);
  EXPECT_TRUE(accumulator_.DestinationFor(encoded, 2).empty());
  EXPECT_THAT(accumulator_.runs(), ElementsAre(Pair(3, 6)));
}

TEST_F(AccumulatorTest, ChunksOutsideTheValuesAreRefused) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (int64_t offset : {int64_t{-1}, int64_t{9}, int64_t{10}, most, -most}) {
    EXPECT_EQ(accumulator_.Add(ChunkAt(offset), Bytes({1, 2})).code(), absl::StatusCode::kInvalidArgument)
        << offset;
  }
  EXPECT_THAT(accumulator_.runs(), IsEmpty());
}

TEST_F(AccumulatorTest, APayloadWithAFractionOfAFloatIsRefused) {
  const absl::Span<const char> seven_bytes("1234567", 7), none;
  EXPECT_EQ(accumulator_.Add(ChunkAt(0), {&seven_bytes, 1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(accumulator_.Add(ChunkAt(0), {&none, 1}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(AccumulatorTest, AFloatMayBeSplitOverTwoRuns) {
  const float values[] = {1.5f, -2.5f};
  const char* const bytes = reinterpret_cast<const char*>(values);
  const absl::Span<const char> runs[] = {{bytes, 3}, {bytes + 3, 5}};
  ASSERT_EQ(accumulator_.Add(ChunkAt(4), net::Payload(runs)), absl::OkStatus());
  EXPECT_THAT(accumulator_.Take().buffer()->span().subspan(4, 2), ElementsAre(1.5f, -2.5f));
}

// Elements [begin, end) of `view`.
std::vector<float> Elements(const GradientView& view, int64_t begin, int64_t end) {
  std::vector<float> elements;
  for (int64_t i = begin; i < end; ++i) {
    const auto& runs = view.runs();
    const auto after =
        std::find_if(runs.begin(), runs.end(), [i](const optim::ElementRun& run) { return run.begin > i; });
    const optim::ElementRun& run = *std::prev(after);
    elements.push_back(run.elements[i - run.begin]);
  }
  return elements;
}

// Borrows elements from a client's memory, in which the server's element i is first at i + 2.
class BorrowingAccumulatorTest : public testing::Test {
 protected:
  BorrowingAccumulatorTest() {
    for (size_t i = 0; i < client_.size(); ++i) client_[i] = static_cast<float>(i) - 2;
  }
  absl::Status Add(int64_t offset, size_t count, int64_t shift = 0) {
    return accumulator_.Add(ChunkAt(offset), net::Borrowed({client_.data() + 2 + offset + shift, count}));
  }

  std::vector<float> client_ = std::vector<float>(14);
  optim::BufferPool pool_{/*size=*/10, /*max_idle=*/2};
  Accumulator accumulator_{pool_, Accumulator::Borrowed::kKept};
};

TEST_F(BorrowingAccumulatorTest, BorrowedChunksWithTheServersLayoutStayInOneRun) {
  ASSERT_EQ(Add(6, 4), absl::OkStatus());
  ASSERT_EQ(Add(0, 2), absl::OkStatus());
  ASSERT_EQ(Add(2, 4), absl::OkStatus());
  EXPECT_TRUE(accumulator_.complete());
  const GradientView view = accumulator_.Take();
  EXPECT_THAT(view.runs(), ElementsAre(optim::ElementRun{0, client_.data() + 2}));
  EXPECT_EQ(view.buffer(), nullptr);
}

TEST_F(BorrowingAccumulatorTest, BorrowedChunksWithAnotherLayoutStayInSeveralRuns) {
  ASSERT_EQ(Add(0, 2), absl::OkStatus());
  ASSERT_EQ(Add(5, 5), absl::OkStatus());
  ASSERT_EQ(Add(2, 3, /*shift=*/1), absl::OkStatus());
  const GradientView view = accumulator_.Take();
  EXPECT_THAT(view.runs(),
              ElementsAre(optim::ElementRun{0, client_.data() + 2}, optim::ElementRun{2, client_.data() + 5},
                          optim::ElementRun{5, client_.data() + 7}));
  EXPECT_EQ(view.buffer(), nullptr);
}

TEST_F(BorrowingAccumulatorTest, AChunkInSeveralLongRunsIsNotCopied) {
  const std::vector<float> client(8192);  // the chunk's runs do not touch each other in it
  const auto at = [&](size_t begin, size_t count) {
    return absl::MakeConstSpan(client).subspan(begin, count);
  };
  optim::BufferPool pool(/*size=*/4096, /*max_idle=*/2);
  Accumulator accumulator(pool, Accumulator::Borrowed::kKept);
  ASSERT_EQ(accumulator.Add(ChunkAt(0), net::Borrowed({at(0, 2048), at(3000, 1024), at(5000, 1024)})),
            absl::OkStatus());
  EXPECT_THAT(accumulator.Take().runs(),
              ElementsAre(optim::ElementRun{0, client.data()}, optim::ElementRun{2048, client.data() + 3000},
                          optim::ElementRun{3072, client.data() + 5000}));
  Accumulator copying(pool, Accumulator::Borrowed::kKept);
  ASSERT_EQ(copying.Add(ChunkAt(0), net::Borrowed({at(0, 1023), at(2000, 1024)})), absl::OkStatus());
  EXPECT_NE(copying.elements().buffer(), nullptr);
}

TEST_F(BorrowingAccumulatorTest, SomeElementsMayBeCopiedAndOthersBorrowed) {
  ASSERT_EQ(Add(5, 5), absl::OkStatus());
  ASSERT_EQ(accumulator_.Add(ChunkAt(2), Bytes({7, 7, 7})), absl::OkStatus());
  const absl::Span<float> destination = accumulator_.DestinationFor(ChunkAt(0), 2);
  ASSERT_EQ(destination.size(), 2u);
  destination[0] = destination[1] = -1;
  const absl::Span<const char> run(reinterpret_cast<const char*>(destination.data()), 2 * sizeof(float));
  ASSERT_EQ(accumulator_.Add(ChunkAt(0), {&run, 1}), absl::OkStatus());
  const GradientView view = accumulator_.Take();
  EXPECT_THAT(view.runs(), ElementsAre(optim::ElementRun{0, destination.data()},
                                       optim::ElementRun{5, client_.data() + 7}));
  EXPECT_THAT(Elements(view, 0, 10), ElementsAre(-1, -1, 7, 7, 7, 5, 6, 7, 8, 9));
}

TEST_F(BorrowingAccumulatorTest, ElementsCopiedBeforeTheFirstBorrowedOnesStayInTheBuffer) {
  ASSERT_EQ(accumulator_.Add(ChunkAt(8), Bytes({7, 7})), absl::OkStatus());
  ASSERT_EQ(accumulator_.Add(ChunkAt(0), Bytes({-1, -1})), absl::OkStatus());
  ASSERT_EQ(Add(2, 6), absl::OkStatus());
  const GradientView view = accumulator_.Take();
  EXPECT_EQ(view.runs().size(), 3u);
  EXPECT_EQ(view.buffer(), nullptr) << "not all elements have been received";
  EXPECT_THAT(Elements(view, 0, 10), ElementsAre(-1, -1, 2, 3, 4, 5, 6, 7, 7, 7));
}

TEST_F(BorrowingAccumulatorTest, ChunksOfAnyKindInAnyOrderAreFoundInTheRuns) {
  std::minstd_rand random(1);
  for (int trial = 0; trial < 300; ++trial) {
    constexpr int64_t kSize = 24;
    optim::BufferPool pool(kSize, /*max_idle=*/2);
    Accumulator accumulator(pool, Accumulator::Borrowed::kKept);
    std::vector<float> client(3 * kSize);
    for (size_t i = 0; i < client.size(); ++i) client[i] = static_cast<float>(i);
    std::vector<std::pair<int64_t, int64_t>> chunks;
    for (int64_t begin = 0, count; begin < kSize; begin += count) {
      count = std::min<int64_t>(kSize - begin, 1 + static_cast<int64_t>(random() % 5));
      chunks.emplace_back(begin, count);
    }
    std::shuffle(chunks.begin(), chunks.end(), random);
    std::vector<float> wanted(kSize, -1);
    for (const auto& [begin, count] : chunks) {
      const auto shift = static_cast<int64_t>(random() % 3) * kSize;  // usually the same for two of them
      const absl::Span<const float> elements(client.data() + begin + shift, static_cast<size_t>(count));
      std::copy(elements.begin(), elements.end(), wanted.begin() + begin);
      const absl::Status added =
          shift == 0 ? accumulator.Add(ChunkAt(begin), Bytes({elements.begin(), elements.end()}))
                     : accumulator.Add(ChunkAt(begin), net::Borrowed(elements));
      ASSERT_EQ(added, absl::OkStatus());
      for (const auto& [from, to] : accumulator.runs()) {
        ASSERT_EQ(Elements(accumulator.elements(), from, to),
                  std::vector<float>(wanted.begin() + from, wanted.begin() + to))
            << "trial " << trial;
      }
    }
    const GradientView last = accumulator.elements();
    EXPECT_EQ(last.runs()[0].begin, 0);
    EXPECT_EQ(accumulator.Take(), last);
  }
}

TEST_F(BorrowingAccumulatorTest, BorrowedMemoryIsOwnedAsLongAsItIsUsed) {
  const net::Borrowed borrowed({client_.data() + 2, 10});
  const int64_t before = borrowed.owners();
  GradientView view;
  {
    Accumulator accumulator(pool_, Accumulator::Borrowed::kKept);
    ASSERT_EQ(accumulator.Add(ChunkAt(0), borrowed), absl::OkStatus());
    view = accumulator.Take();
  }
  EXPECT_GT(borrowed.owners(), before);
  view = GradientView();
  EXPECT_EQ(borrowed.owners(), before);
}

TEST_F(BorrowingAccumulatorTest, AskingForADestinationMovesNothing) {
  ASSERT_EQ(Add(5, 5), absl::OkStatus());
  ASSERT_FALSE(accumulator_.DestinationFor(ChunkAt(0), 2).empty());
  EXPECT_THAT(accumulator_.elements().runs(), ElementsAre(optim::ElementRun{5, client_.data() + 7}));
}

TEST_F(BorrowingAccumulatorTest, MisalignedElementsAreCopied) {
  std::vector<char> bytes(15 * sizeof(float));
  char* const odd = bytes.data() + 1;
  std::memcpy(odd, client_.data(), 14 * sizeof(float));
  const absl::Span<const float> elements(reinterpret_cast<const float*>(odd), 14);
  ASSERT_EQ(accumulator_.Add(ChunkAt(0), net::Borrowed(elements.subspan(2, 10))), absl::OkStatus());
  EXPECT_THAT(accumulator_.Take().buffer()->span(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(BorrowingAccumulatorTest, RunsBeyondTheLimitAreCopied) {
  constexpr int64_t kSize = 8192;
  const std::vector<float> forth(kSize, 1), back(kSize, 2);
  optim::BufferPool pool(kSize, /*max_idle=*/2);
  Accumulator accumulator(pool, Accumulator::Borrowed::kKept);
  for (int64_t i = 0; i < kSize; ++i) {
    const std::vector<float>& from = i % 2 == 0 ? forth : back;
    ASSERT_EQ(accumulator.Add(ChunkAt(i), net::Borrowed({from.data() + i, 1})), absl::OkStatus());
  }
  const GradientView view = accumulator.Take();
  EXPECT_LT(view.runs().size(), 2000u);
  EXPECT_THAT(Elements(view, kSize - 2, kSize), ElementsAre(1, 2));
}

TEST_F(BorrowingAccumulatorTest, RefusedAndEncodedChunksAreNotBorrowed) {
  EXPECT_EQ(Add(8, 4).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(accumulator_.elements().none());
  v1::Chunk encoded = ChunkAt(0);
  encoded.set_encoding(v1::ENCODING_BFLOAT16);
  encoded.set_count(4);
  ASSERT_EQ(accumulator_.Add(encoded, net::Borrowed({client_.data() + 2, 2})), absl::OkStatus());
  EXPECT_NE(accumulator_.elements().buffer(), nullptr);
}

TEST_F(BorrowingAccumulatorTest, WithCopyingNothingIsBorrowed) {
  Accumulator accumulator(pool_);
  ASSERT_EQ(accumulator.Add(ChunkAt(0), net::Borrowed({client_.data() + 2, 10})), absl::OkStatus());
  EXPECT_THAT(accumulator.Take().buffer()->span(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(BorrowingAccumulatorTest, WithoutMemoryForACopyTheChunkIsRefused) {
  optim::BufferPool none(/*size=*/10, /*max_idle=*/2, std::make_shared<optim::MemoryBudget>(8));
  Accumulator accumulator(none, Accumulator::Borrowed::kKept);
  ASSERT_EQ(accumulator.Add(ChunkAt(0), net::Borrowed({client_.data() + 2, 2})), absl::OkStatus());
  EXPECT_EQ(accumulator.Add(ChunkAt(2), Bytes({7})).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(accumulator.received(), 2);
  EXPECT_THAT(accumulator.elements().runs(), ElementsAre(optim::ElementRun{0, client_.data() + 2}));
}

TEST(AccumulatorOfNothing, IsCompleteAtOnce) {
  optim::BufferPool pool(0, 1);
  Accumulator accumulator(pool);
  EXPECT_TRUE(accumulator.complete());
  EXPECT_TRUE(accumulator.Take().none());
}

}  // namespace
}  // namespace cairn::ps
