#include "ps/accumulator.h"

#include <limits>

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
  EXPECT_THAT(accumulator_.Take()->span(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
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
  EXPECT_THAT(accumulator_.Take()->span().subspan(3, 3), ElementsAre(3, 4, 5));
}

TEST_F(AccumulatorTest, WhatLiesInItsPlaceAlreadyIsOnlyCounted) {
  const absl::Span<float> place = accumulator_.PlaceFor(At(3), 2);
  ASSERT_EQ(place.size(), 2u);
  place[0] = 3, place[1] = 4;
  const absl::Span<const char> run(reinterpret_cast<const char*>(place.data()), 2 * sizeof(float));
  EXPECT_EQ(accumulator_.received(), 0);
  ASSERT_TRUE(accumulator_.Add(At(3), {&run, 1}).ok());
  EXPECT_THAT(accumulator_.runs(), ElementsAre(Pair(3, 5)));
  EXPECT_THAT(accumulator_.Take()->span().subspan(3, 2), ElementsAre(3, 4));
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
  EXPECT_THAT(accumulator_.Take()->span().subspan(4, 2), ElementsAre(1.5f, -2.5f));
}

TEST(AccumulatorOfNothing, IsCompleteAtOnce) {
  BufferPool pool(0, 1);
  Accumulator accumulator(pool);
  EXPECT_TRUE(accumulator.complete());
  EXPECT_EQ(accumulator.Take(), nullptr);
}

}  // namespace
}  // namespace cairn::ps
