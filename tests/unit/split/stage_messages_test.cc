#include "worker/split/stage_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace cairn::split {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const nn::ModelInput kRaggedInput = {"ids", {1}, DType::kInt64, /*ragged=*/true};

TEST(PackInput, ARaggedInputArrivesWithRowSplitsFromZero) {
  const std::vector<int64_t> ids = {7, -1, int64_t{1} << 53, 8}, splits = {1, 2, 4};
  const TensorView input = {DType::kInt64, {4}, ids.data(), absl::MakeConstSpan(splits)};
  EXPECT_EQ(RaggedValues(input), 3);
  const int64_t floats = PackedFloats(kRaggedInput, 2, 3);
  EXPECT_EQ(floats, 2 * (3 + 3));
  const auto packed = PackInput(input, floats);
  const auto arrived = UnpackInput(kRaggedInput, 2, 3, packed.get());
  ASSERT_TRUE(arrived.ok()) << arrived.status();
  EXPECT_THAT(arrived->row_splits, ElementsAre(0, 1, 3));
  EXPECT_EQ(arrived->shape, Shape({3}));
  EXPECT_EQ(arrived->Integer(0), -1);
  EXPECT_EQ(arrived->Integer(1), int64_t{1} << 53);
  EXPECT_EQ(arrived->Integer(2), 8);
}

TEST(PackInput, AnInputOfBytesIsFilledUp) {
  const nn::ModelInput input = {"x", {3}, DType::kUint8, /*ragged=*/false};
  const std::vector<uint8_t> values = {1, 2, 3};
  const TensorView view = {DType::kUint8, {1, 3}, values.data()};
  EXPECT_EQ(RaggedValues(view), 0);
  EXPECT_EQ(PackedFloats(input, 1, 0), 1);
  const auto packed = PackInput(view, 1);
  EXPECT_EQ(UnpackInput(input, 1, 0, packed.get())->Integer(2), 3);
}

TEST(UnpackInput, BadRowSplitsAreRefused) {
  for (const std::vector<int64_t>& splits : std::vector<std::vector<int64_t>>{
           {1, 2, 3}, {0, 4, 3}, {0, -1, 3}, {0, 1, 2}, {0, 1, int64_t{1} << 62}}) {
    std::vector<int64_t> packed = splits;
    packed.resize(6);
    EXPECT_THAT(std::string(UnpackInput(kRaggedInput, 2, 3, reinterpret_cast<const float*>(packed.data()))
                                .status()
                                .message()),
                HasSubstr("split: invalid row splits of input 'ids' with 3 values"));
  }
}

}  // namespace
}  // namespace cairn::split
