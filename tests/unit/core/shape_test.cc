#include "common/core/shape.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(Shape, AScalarHasOneElement) {
  EXPECT_EQ(Shape().num_elements(), 1);
}

TEST(Shape, RowElementsLeaveOutTheFirstAxis) {
  EXPECT_EQ(Shape({10, 3, 2}).row_elements(), 6);
}

TEST(Shape, PrintsAsAList) {
  EXPECT_EQ(Shape({3, 3, 1, 32}).ToString(), "[3,3,1,32]");
}

TEST(Shape, UntrustedNegativeExtentIsRefused) {
  EXPECT_EQ(Shape::FromUntrusted({2, -1}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Shape, UntrustedProductThatOverflowsIsRefused) {
  EXPECT_EQ(Shape::FromUntrusted({int64_t{1} << 32, int64_t{1} << 32}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
