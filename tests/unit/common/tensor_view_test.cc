#include "common/core/tensor_view.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace cairn {
namespace {

TEST(DType, HasSizesAndNames) {
  EXPECT_EQ(BytesOf(DType::kFloat32), 4);
  EXPECT_EQ(BytesOf(DType::kInt64), 8);
  EXPECT_EQ(BytesOf(DType::kBool), 1);
  EXPECT_EQ(BytesOf(DType::kBFloat16), 2);
  EXPECT_EQ(NameOf(DType::kUint8), "uint8");
  EXPECT_TRUE(IsInteger(DType::kBool));
  EXPECT_FALSE(IsInteger(DType::kFloat16));
}

TEST(TensorView, RowsAreAPartOfTheSameMemory) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  const TensorView tensor = TensorView::OfFloats({3, 2}, values);
  const TensorView rows = tensor.Rows(1, 2);
  EXPECT_EQ(rows.shape, Shape({2, 2}));
  EXPECT_EQ(rows.floats().data(), values.data() + 2);
  EXPECT_EQ(rows.bytes(), 16);
}

TEST(TensorView, IntegersOfEveryTypeAreReadExactly) {
  const std::vector<int64_t> longs = {(int64_t{1} << 53) + 1, std::numeric_limits<int64_t>::min()};
  const std::vector<int32_t> ints = {-1, (1 << 24) + 1};
  const std::vector<uint8_t> bytes = {255, 1};
  EXPECT_EQ((TensorView{DType::kInt64, {2}, longs.data()}.Integer(0)), 9007199254740993);
  EXPECT_EQ((TensorView{DType::kInt64, {2}, longs.data()}.Integer(1)), std::numeric_limits<int64_t>::min());
  EXPECT_EQ((TensorView{DType::kInt32, {2}, ints.data()}.Integer(1)), 16777217);
  EXPECT_EQ((TensorView{DType::kUint8, {2}, bytes.data()}.Integer(0)), 255);
  EXPECT_EQ((TensorView{DType::kBool, {2}, bytes.data()}.Integer(1)), 1);
}

}  // namespace
}  // namespace cairn
