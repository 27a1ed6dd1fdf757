#include "ps/accumulator.h"

#include <cstring>
#include <limits>
#include <memory>
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
  BufferPool pool_{/*size=*/10, /*max_idle=*/2};
  Accumulator accumulator_{pool_};
};

TEST_F(AccumulatorTest, ChunksInAnyOrderMakeTheWhole) {
  EXPECT_EQ(accumulator_.Add(At(6), Bytes({6, 7, 8, 9})), absl::OkStatus());
  EXPECT_EQ(accumulator_.Add(At(0), Bytes({0, 1})), absl::OkStatus());
  EXPECT_FALSE(accumulator_.complete());
  EXPECT_EQ(accumulator_.Add(At(2), Bytes({2, 3, 4, 5})), absl::OkStatus());
  EXPECT_TRUE(accumulator_.complete());
  EXPECT_THAT(accumulator_.runs(), ElementsAre(Pair(0, 10)));
  EXPECT_THAT(accumulator_.Take().buffer()->span(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(AccumulatorTest, RunsThatTouchBecomeOne) {
  ASSERT_TRUE(accumulator_.Add(At(0), Bytes({0})).ok());
  ASSERT_TRUE(accumulator_.Add(At(2), Bytes({2})).ok());
  ASSERT_TRUE(accumulator_.Add(At(5), Bytes({5})).ok());
  EXPECT_THAT(accumulator_.runs(), ElementsAre(Pair(0, 1), Pair(2, 3), Pair(5, 6)));
  ASSERT_TRUE(accumulator_.Add(At(1), Bytes({1})).ok());
  EXPECT_THAT(accumulator_.runs(), ElementsAre(Pair(0, 3), Pair(5, 6)));
  EXPECT_EQ(accumulator_.received(), 4);
}

TEST_F(AccumulatorTest, ElementsThatCameBeforeAreRefusedWithoutEffect) {
  ASSERT_TRUE(accumulator_.Add(At(3), Bytes({3, 4, 5})).ok());
  for (int64_t offset : {1, 2, 3, 4, 5}) {
    EXPECT_EQ(accumulator_.Add(At(offset), Bytes({-1, -1, -1})).code(), absl::StatusCode::kInvalidArgument)
        << offset;
  }
  EXPECT_EQ(accumulator_.received(), 3);
  EXPECT_THAT(accumulator_.Take().buffer()->span().subspan(3, 3), ElementsAre(3, 4, 5));
}

TEST_F(AccumulatorTest, WhatLiesInItsPlaceAlreadyIsOnlyCounted) {
  const absl::Span<float> place = accumulator_.PlaceFor(At(3), 2);
  ASSERT_EQ(place.size(), 2u);
  place[0] = 3, place[1] = 4;
  const absl::Span<const char> run(reinterpret_cast<const char*>(place.data()), 2 * sizeof(float));
  EXPECT_EQ(accumulator_.received(), 0);
  ASSERT_TRUE(accumulator_.Add(At(3), {&run, 1}).ok());
  EXPECT_THAT(accumulator_.runs(), ElementsAre(Pair(3, 5)));
  EXPECT_THAT(accumulator_.Take().buffer()->span().subspan(3, 2), ElementsAre(3, 4));
}

TEST_F(AccumulatorTest, WhatWouldBeRefusedHasNoPlace) {
  ASSERT_TRUE(accumulator_.Add(At(3), Bytes({3, 4, 5})).ok());
  for (int64_t offset : {-1, 2, 3, 5, 9, 10}) EXPECT_TRUE(accumulator_.PlaceFor(At(offset), 2).empty());
  v1::Chunk encoded = At(0);
  encoded.set_encoding(v1::ENCODING_BFLOAT16);
  EXPECT_TRUE(accumulator_.PlaceFor(encoded, 2).empty());
  EXPECT_THAT(accumulator_.runs(), ElementsAre(Pair(3, 6)));
}

TEST_F(AccumulatorTest, ChunksOutsideTheValuesAreRefused) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (int64_t offset : {int64_t{-1}, int64_t{9}, int64_t{10}, most, -most}) {
    EXPECT_EQ(accumulator_.Add(At(offset), Bytes({1, 2})).code(), absl::StatusCode::kInvalidArgument)
        << offset;
  }
  EXPECT_THAT(accumulator_.runs(), IsEmpty());
}

TEST_F(AccumulatorTest, APayloadThatIsNoWholeNumberOfFloatsIsRefused) {
  const absl::Span<const char> seven_bytes("1234567", 7), none;
  EXPECT_EQ(accumulator_.Add(At(0), {&seven_bytes, 1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(accumulator_.Add(At(0), {&none, 1}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(AccumulatorTest, AFloatMayComeInTwoRuns) {
  const float values[] = {1.5f, -2.5f};
  const char* const bytes = reinterpret_cast<const char*>(values);
  const absl::Span<const char> runs[] = {{bytes, 3}, {bytes + 3, 5}};
  ASSERT_EQ(accumulator_.Add(At(4), net::Payload(runs)), absl::OkStatus());
  EXPECT_THAT(accumulator_.Take().buffer()->span().subspan(4, 2), ElementsAre(1.5f, -2.5f));
}

// Of elements that a client has, 10 of the 14 that are mapped.
class LentAccumulatorTest : public testing::Test {
 protected:
  LentAccumulatorTest() {
    for (size_t i = 0; i < mapped_.size(); ++i) mapped_[i] = static_cast<float>(i) - 2;
  }
  absl::Status Add(int64_t offset, size_t count, int64_t shift = 0) {
    const absl::Span<const float> elements(mapped_.data() + 2 + offset + shift, count);
    return accumulator_.Add(At(offset), Lent(elements, mapped_));
  }

  std::vector<float> mapped_ = std::vector<float>(14);
  BufferPool pool_{/*size=*/10, /*max_idle=*/2};
  Accumulator accumulator_{pool_, Accumulator::Lent::kKept};
};

TEST_F(LentAccumulatorTest, WhatLiesAtTheClientAsItDoesHereStaysThere) {
  ASSERT_EQ(Add(6, 4), absl::OkStatus());
  ASSERT_EQ(Add(0, 2), absl::OkStatus());
  EXPECT_EQ(accumulator_.elements().data(), mapped_.data() + 2);
  ASSERT_EQ(Add(2, 4), absl::OkStatus());
  EXPECT_TRUE(accumulator_.complete());
  const HeldElements held = accumulator_.Take();
  EXPECT_EQ(held.data(), mapped_.data() + 2);
  EXPECT_EQ(held.buffer(), nullptr);
}

TEST_F(LentAccumulatorTest, WhatHasComeIsCopiedWhenOtherElementsLieElsewhere) {
  ASSERT_EQ(Add(0, 2), absl::OkStatus());
  ASSERT_EQ(Add(5, 5), absl::OkStatus());
  ASSERT_EQ(Add(2, 3, /*shift=*/1), absl::OkStatus());
  const HeldElements held = accumulator_.Take();
  ASSERT_NE(held.buffer(), nullptr);
  EXPECT_THAT(held.buffer()->span(), ElementsAre(0, 1, 3, 4, 5, 5, 6, 7, 8, 9));
}

TEST_F(LentAccumulatorTest, WhatHasComeIsCopiedWhenOtherElementsAreHere) {
  ASSERT_EQ(Add(5, 5), absl::OkStatus());
  ASSERT_EQ(accumulator_.Add(At(2), Bytes({7, 7, 7})), absl::OkStatus());
  const absl::Span<float> place = accumulator_.PlaceFor(At(0), 2);
  ASSERT_EQ(place.size(), 2u);
  place[0] = place[1] = -1;
  const absl::Span<const char> run(reinterpret_cast<const char*>(place.data()), 2 * sizeof(float));
  ASSERT_EQ(accumulator_.Add(At(0), {&run, 1}), absl::OkStatus());
  EXPECT_THAT(accumulator_.Take().buffer()->span(), ElementsAre(-1, -1, 7, 7, 7, 5, 6, 7, 8, 9));
}

TEST_F(LentAccumulatorTest, APlaceForTheNextChunkMovesNothingByItself) {
  ASSERT_EQ(Add(5, 5), absl::OkStatus());
  ASSERT_FALSE(accumulator_.PlaceFor(At(0), 2).empty());
  EXPECT_EQ(accumulator_.elements().data(), mapped_.data() + 2);
}

TEST_F(LentAccumulatorTest, WhatTheClientHasNotAllOfIsCopied) {
  for (const int64_t shift : {-3, 3}) {
    Accumulator accumulator(pool_, Accumulator::Lent::kKept);
    const absl::Span<const float> elements(mapped_.data() + 2 + 4 + shift, 2);
    ASSERT_EQ(accumulator.Add(At(4), Lent(elements, mapped_)), absl::OkStatus());
    ASSERT_NE(accumulator.elements().buffer(), nullptr) << shift;
    EXPECT_EQ(accumulator.elements().data()[4], mapped_[static_cast<size_t>(6 + shift)]);
  }
}

TEST_F(LentAccumulatorTest, ElementsAcrossAddressesOfFloatsAreCopied) {
  std::vector<char> bytes(15 * sizeof(float));
  char* const odd = bytes.data() + 1;
  std::memcpy(odd, mapped_.data(), 14 * sizeof(float));
  const absl::Span<const float> around(reinterpret_cast<const float*>(odd), 14);
  ASSERT_EQ(accumulator_.Add(At(0), Lent(around.subspan(2, 10), around)), absl::OkStatus());
  EXPECT_THAT(accumulator_.Take().buffer()->span(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(LentAccumulatorTest, RefusedChunksAndEncodedOnesAreNotKept) {
  EXPECT_EQ(Add(8, 4).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(accumulator_.elements().none());
  v1::Chunk encoded = At(0);
  encoded.set_encoding(v1::ENCODING_BFLOAT16);
  encoded.set_count(4);
  const absl::Span<const float> elements(mapped_.data() + 2, 2);
  ASSERT_EQ(accumulator_.Add(encoded, Lent(elements, mapped_)), absl::OkStatus());
  EXPECT_NE(accumulator_.elements().buffer(), nullptr);
}

TEST_F(LentAccumulatorTest, OneThatIsToCopyDoes) {
  Accumulator accumulator(pool_);
  ASSERT_EQ(accumulator.Add(At(0), Lent({mapped_.data() + 2, 10}, mapped_)), absl::OkStatus());
  EXPECT_THAT(accumulator.Take().buffer()->span(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(LentAccumulatorTest, WithoutMemoryForACopyItSaysSo) {
  BufferPool none(/*size=*/10, /*max_idle=*/2, std::make_shared<MemoryBudget>(8));
  Accumulator accumulator(none, Accumulator::Lent::kKept);
  ASSERT_EQ(accumulator.Add(At(0), Lent({mapped_.data() + 2, 2}, mapped_)), absl::OkStatus());
  EXPECT_EQ(accumulator.Add(At(2), Bytes({7})).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(accumulator.received(), 2);
  EXPECT_EQ(accumulator.elements().data(), mapped_.data() + 2);
}

TEST(AccumulatorOfNothing, IsCompleteAtOnce) {
  BufferPool pool(0, 1);
  Accumulator accumulator(pool);
  EXPECT_TRUE(accumulator.complete());
  EXPECT_TRUE(accumulator.Take().none());
}

}  // namespace
}  // namespace cairn::ps
