#include "worker/adapt/bin_boundaries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BinBoundaries, DivideEqualValuesAtTheirQuantiles) {
  EXPECT_THAT(BinBoundaries({8, 1, 7, 2, 6, 3, 5, 4}, 4, 0.01), ElementsAre(2, 4, 6));
}

TEST(BinBoundaries, OneBinHasNone) {
  EXPECT_THAT(BinBoundaries({3, 1, 2}, 1, 0.01), IsEmpty());
}

TEST(BinBoundaries, FewValuesAreTheBoundaries) {
  EXPECT_THAT(BinBoundaries({3, 1, 2}, 10, 0.01), ElementsAre(1, 2));
}

}  // namespace
}  // namespace cairn::worker
