#include "data/row_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "data/array.h"
#include "data/input_rows.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

TEST(ToInteger, KeepsEveryIntegerThatTheTypeHolds) {
  for (const int64_t id : {(int64_t{1} << 24) + 1, (int64_t{1} << 53) + 1, int64_t{-1}, kLeast}) {
    EXPECT_EQ(ToInteger(id, DType::kInt64), id);
  }
  EXPECT_EQ(ToInteger(uint64_t{1} << 63, DType::kInt64), std::nullopt);
  EXPECT_EQ(ToInteger(int64_t{1} << 31, DType::kInt32), std::nullopt);
  EXPECT_EQ(ToInteger(256, DType::kUint8), std::nullopt);
  EXPECT_EQ(ToInteger(-1, DType::kUint8), std::nullopt);
  EXPECT_EQ(ToInteger(2, DType::kBool), std::nullopt);
}

TEST(ToInteger, TakesOnlyWholeFloats) {
  EXPECT_EQ(ToInteger(-3.0f, DType::kInt32), -3);
  EXPECT_EQ(ToInteger(Half{0x4200}, DType::kInt64), 3);
  EXPECT_EQ(ToInteger(-0x1p63, DType::kInt64), kLeast);
  EXPECT_EQ(ToInteger(0x1p63, DType::kInt64), std::nullopt);
  EXPECT_EQ(ToInteger(1.5f, DType::kInt64), std::nullopt);
  EXPECT_EQ(ToInteger(std::numeric_limits<float>::quiet_NaN(), DType::kInt64), std::nullopt);
}

TEST(WriteRow, ScalesFloatsAndKeepsIntegers) {
  float number = 0;
  int64_t id = 0;
  const std::vector<int64_t> row = {5, (int64_t{1} << 53) + 1};
  const MutableTensorView to[] = {{DType::kFloat32, {1}, &number}, {DType::kInt64, {1}, &id}};
  EXPECT_EQ(WriteRow(to, {.factor = 2}, [&](int64_t i) { return row[static_cast<size_t>(i)]; }),
            std::nullopt);
  EXPECT_EQ(number, 10);
  EXPECT_EQ(id, 9007199254740993);
}

TEST(WriteRow, ReturnsTheFirstNumberThatDoesNotFitAndWritesZero) {
  float number = 0;
  int32_t ids[] = {7, 7, 7};
  const std::vector<double> row = {0.5, 1, 1.5, 3e9};
  const MutableTensorView to[] = {{DType::kFloat32, {1}, &number}, {DType::kInt32, {3}, ids}};
  EXPECT_EQ(WriteRow(to, {}, [&](int64_t i) { return row[static_cast<size_t>(i)]; }), 2);
  EXPECT_THAT(ids, ElementsAre(1, 0, 0));
  EXPECT_EQ(CannotHold("x.npy: example 7", 2, row[2], to).message(),
            "x.npy: example 7: value 2 is 1.5, and the model's input takes whole numbers (int32)");
}

TEST(RowCursor, DividesTensorsAmongTheParts) {
  float numbers[3];
  uint8_t bytes[2];
  const MutableTensorView to[] = {{DType::kFloat32, {3, 1}, numbers}, {DType::kUint8, {2}, bytes}};
  RowCursor cursor(to);
  const auto first = cursor.Take(2), second = cursor.Take(3);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].shape, Shape({2}));
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].data, numbers + 2);
  EXPECT_EQ(second[1].data, bytes);
  EXPECT_EQ(second[1].shape, Shape({2}));
}

TEST(InputRows, HoldsAnArrayOfItsTypeForEachInput) {
  InputRows rows(std::vector<InputSpec>{{DType::kInt64, {1}}, {DType::kFloat32, {2}}, {DType::kUint8, {3}}},
                 5);
  for (int64_t row = 0; row < 5; ++row) {
    *static_cast<int64_t*>(rows.Row(row)[0].data) = -row;
    rows.Row(row)[1].floats()[1] = static_cast<float>(row);
    static_cast<uint8_t*>(rows.Row(row)[2].data)[2] = static_cast<uint8_t>(row);
  }
  const TensorViews views = rows.First(4);
  EXPECT_EQ(views[0].shape, Shape({4, 1}));
  EXPECT_EQ(views[0].Integer(3), -3);
  EXPECT_THAT(views[1].floats(), ElementsAre(0, 0, 0, 1, 0, 2, 0, 3));
  EXPECT_EQ(views[2].Integer(11), 3);
  EXPECT_EQ(rows.buffers()[2].size(), 4);  // 15 bytes
}

TEST(InputRows, RowsOfARaggedInputFollowEachOther) {
  InputRows rows(std::vector<InputSpec>{{DType::kInt64, {3}, /*ragged=*/true}}, 4);
  const std::vector<std::vector<int64_t>> values = {{1, 2}, {3}, {4, 5, 6}};
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (size_t row = 0; row < values.size(); ++row) {
      const MutableTensorView to = rows.Row(static_cast<int64_t>(row))[0];
      WriteRagged(to, static_cast<int64_t>(values[row].size()),
                  [&](int64_t i) { return values[row][static_cast<size_t>(i)]; });
    }
    const TensorView first = rows.First(3)[0];
    EXPECT_THAT(first.row_splits, ElementsAre(0, 2, 3, 6));
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(first.Integer(i), i + 1);
    EXPECT_THAT(first.Rows(1, 2).row_splits, ElementsAre(2, 3, 6));
  }
}

TEST(InputRows, MemoryOfARaggedInputGrowsWithTheValues) {
  constexpr int64_t kLongest = 1000;
  InputRows rows(std::vector<InputSpec>{{DType::kFloat32, {kLongest}, /*ragged=*/true}}, 1'000'000);
  EXPECT_LT(rows.buffers()[0].size(), 2 * kLongest) << "and not a million of the longest rows";
  for (int64_t row = 0; row < 10; ++row) {
    WriteRagged(rows.Row(row)[0], kLongest - row,
                [&](int64_t i) { return static_cast<float>(row * kLongest + i); });
  }
  const TensorView all = rows.First(10)[0];
  for (int64_t row = 0; row < 10; ++row) {
    const int64_t first = all.row_splits[static_cast<size_t>(row)];
    EXPECT_EQ(all.floats()[static_cast<size_t>(first)], static_cast<float>(row * kLongest));
  }
}

TEST(WriteRagged, WithoutAnEndTheRestIsZero) {
  int64_t to[3] = {7, 7, 7};
  WriteRagged({DType::kInt64, {3}, to}, 2, [](int64_t i) { return i + 1; });
  EXPECT_THAT(to, ElementsAre(1, 2, 0));
}

}  // namespace
}  // namespace cairn::data
