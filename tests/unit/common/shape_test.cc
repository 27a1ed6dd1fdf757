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

TEST(Shape, AProductBeyondAllMemoryDoesNotOverflow) {
  const Shape shape = {int64_t{1} << 40, int64_t{1} << 40, 3};
  EXPECT_EQ(shape.num_elements(), int64_t{1} << 56);
  EXPECT_EQ(Shape({2, int64_t{1} << 40, int64_t{1} << 40}).row_elements(), int64_t{1} << 56);
  EXPECT_EQ(Shape({int64_t{1} << 40, int64_t{1} << 40, 0}).num_elements(), 0);
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

// One row of this shape would have more elements than an int64_t can count.
TEST(Shape, UntrustedRowsThatOverflowAreRefusedEvenIfThereAreNone) {
  const absl::Status status = Shape::FromUntrusted({0, int64_t{1} << 62, 4}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), "shape [0,4611686018427387904,4] has more than 2^40 elements");
  EXPECT_TRUE(Shape::FromUntrusted({0, 28, 28}).ok());
}

}  // namespace
}  // namespace cairn
