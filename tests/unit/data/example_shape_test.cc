#include "data/example_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::data {
namespace {

using ::testing::HasSubstr;

TEST(IsCompatible, AxesOfOneMayBeAddedOrMissing) {
  EXPECT_TRUE(IsCompatible({7, 5, 1}, {7, 5}));
  EXPECT_TRUE(IsCompatible({7, 5}, {7, 5, 1}));
  EXPECT_TRUE(IsCompatible({1, 7, 5}, {7, 5, 1})) << "one channel first is one channel last";
  EXPECT_TRUE(IsCompatible({7, 1, 5, 3}, {7, 5, 3}));
}

TEST(IsCompatible, FlatExamplesFitAnyShapeWithAsManyElements) {
  EXPECT_TRUE(IsCompatible({105}, {7, 5, 3}));
  EXPECT_TRUE(IsCompatible({1, 105}, {7, 5, 3}));
  EXPECT_TRUE(IsCompatible({7, 5, 3}, {105})) << "row by row";
  EXPECT_FALSE(IsCompatible({104}, {7, 5, 3}));
}

TEST(IsCompatible, AnEqualNumberOfElementsIsNotEnough) {
  const Shape wanted = {7, 5, 3};
  for (const Shape& given : {Shape{3, 7, 5}, Shape{5, 7, 3}, Shape{35, 3}, Shape{7, 15}, Shape{3, 5, 7}}) {
    EXPECT_FALSE(IsCompatible(given, wanted)) << given.ToString();
  }
  EXPECT_FALSE(IsCompatible({3, 10}, {10, 3})) << "time first and last";
  EXPECT_FALSE(IsCompatible({2, 5}, {10, 1})) << "a sequence of ten numbers is not two of five";
}

TEST(MismatchHint, NamesChannelsFirstAndOtherOrders) {
  EXPECT_THAT(MismatchHint({3, 7, 5}, {7, 5, 3}), HasSubstr("channels first"));
  EXPECT_THAT(MismatchHint({3, 8, 8}, {8, 8, 3}), HasSubstr("channels first"));
  EXPECT_THAT(MismatchHint({5, 7, 3}, {7, 5, 3}), HasSubstr("axes are in another order"));
  EXPECT_THAT(MismatchHint({3, 10, 1}, {10, 3}), HasSubstr("axes are in another order"));
  EXPECT_EQ(MismatchHint({35, 3}, {7, 5, 3}), "");
  EXPECT_EQ(MismatchHint({3, 7, 4}, {7, 5, 3}), "");
}

}  // namespace
}  // namespace cairn::data
