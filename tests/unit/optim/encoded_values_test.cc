#include "optim/store/encoded_values.h"

#include <cstring>
#include <vector>

#include "common/net/wire/codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::optim {
namespace {

constexpr int64_t kSize = 7;
constexpr auto kWire = v1::ENCODING_BFLOAT16;

std::shared_ptr<AlignedBuffer> Rising(float first) {
  auto values = std::make_shared<AlignedBuffer>(kSize);
  for (int64_t i = 0; i < kSize; ++i) values->data()[i] = first + static_cast<float>(i);
  return values;
}

// The bytes of elements [begin, end).
std::string Part(const AlignedBuffer& encoded, int64_t begin, int64_t end) {
  return {reinterpret_cast<const char*>(encoded.data()) + 2 * begin, static_cast<size_t>(2 * (end - begin))};
}
std::string Expected(const AlignedBuffer& values, int64_t begin, int64_t end) {
  std::string bytes(static_cast<size_t>(2 * (end - begin)), '\0');
  net::CodecOf(kWire)->Encode(
      values.span().subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), bytes.data());
  return bytes;
}

class EncodedValuesTest : public testing::Test {
 protected:
  std::shared_ptr<MemoryBudget> budget_ = std::make_shared<MemoryBudget>(1 << 20);
  EncodedValues encoded_{kSize, budget_};
};

TEST_F(EncodedValuesTest, AreEncodedOnceForAllReaders) {
  const auto values = Rising(1);
  const auto first = encoded_.Of(values, kWire).value();
  EXPECT_EQ(Part(*first, 0, kSize), Expected(*values, 0, kSize));
  EXPECT_EQ(encoded_.Of(values, kWire).value(), first);
  EXPECT_NE(encoded_.Of(values, v1::ENCODING_FLOAT16).value(), first);
  EXPECT_NE(encoded_.Of(Rising(1), kWire).value(), first) << "other values, although they are equal";
}

TEST_F(EncodedValuesTest, PiecesOfOneVersionShareABuffer) {
  const auto values = Rising(1);
  const auto last = encoded_.OfPiece(values, kWire, 4, kSize).value();
  EXPECT_EQ(Part(*last, 4, kSize), Expected(*values, 4, kSize));
  values->data()[0] = 100;  // computed only now
  const auto first = encoded_.OfPiece(values, kWire, 0, 4).value();
  EXPECT_EQ(first, last);
  EXPECT_EQ(Part(*first, 0, kSize), Expected(*values, 0, kSize));
  EXPECT_EQ(encoded_.Of(values, kWire).value(), first) << "complete by now";
}

TEST_F(EncodedValuesTest, APieceIsEncodedOnce) {
  const auto values = Rising(1);
  const auto first = encoded_.OfPiece(values, kWire, 0, 4).value();
  const std::string before = Part(*first, 0, 4);
  values->data()[0] = 100;
  EXPECT_EQ(encoded_.OfPiece(values, kWire, 0, 4).value(), first);
  EXPECT_EQ(Part(*first, 0, 4), before);
}

TEST_F(EncodedValuesTest, EncodingAllValuesLeavesPiecesInFlightUnchanged) {
  const auto values = Rising(1);
  const auto piece = encoded_.OfPiece(values, kWire, 0, 4).value();
  const auto all = encoded_.Of(values, kWire).value();
  EXPECT_NE(all, piece);
  EXPECT_EQ(Part(*all, 0, kSize), Expected(*values, 0, kSize));
  EXPECT_EQ(encoded_.OfPiece(values, kWire, 4, kSize).value(), all);
}

TEST_F(EncodedValuesTest, AreRefusedWithoutRoom) {
  EncodedValues none(kSize, std::make_shared<MemoryBudget>(8));
  EXPECT_EQ(none.Of(Rising(1), kWire).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(none.OfPiece(Rising(1), kWire, 0, 4).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace cairn::optim
