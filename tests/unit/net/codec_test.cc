#include "common/net/wire/codec.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<char> Encoded(v1::Encoding encoding, const std::vector<float>& values) {
  std::vector<char> bytes(static_cast<size_t>(Codec::Floats(static_cast<int64_t>(values.size()))) *
                          sizeof(float));
  CodecOf(encoding)->Encode(values, bytes.data());
  return bytes;
}

std::vector<float> ThereAndBack(v1::Encoding encoding, const std::vector<float>& values) {
  const std::vector<char> bytes = Encoded(encoding, values);
  std::vector<float> back(values.size());
  CodecOf(encoding)->Decode(bytes.data(), absl::MakeSpan(back));
  return back;
}

// Encodes and decodes one value alone and one among sixteen, which use different code.
std::vector<float> Both(v1::Encoding encoding, float value) {
  const std::vector<float> many = ThereAndBack(encoding, std::vector<float>(16, value));
  return {ThereAndBack(encoding, {value})[0], many.back()};
}

TEST(Bfloat16, KeepsRepresentableNumbersAndRoundsOthersToNearestEven) {
  for (const float value : {0.0f, 1.0f, -2.5f, 0x1.02p0f, 0x1p-133f, 0x1.fep127f, kInfinity, -kInfinity}) {
    EXPECT_THAT(Both(v1::ENCODING_BFLOAT16, value), ElementsAre(value, value));
  }
  EXPECT_THAT(Both(v1::ENCODING_BFLOAT16, 0x1.01p0f), ElementsAre(1, 1)) << "half-way, to even";
  EXPECT_THAT(Both(v1::ENCODING_BFLOAT16, 0x1.03p0f), ElementsAre(0x1.04p0f, 0x1.04p0f))
      << "half-way, to even";
  EXPECT_THAT(Both(v1::ENCODING_BFLOAT16, 0x1.010002p0f), ElementsAre(0x1.02p0f, 0x1.02p0f));
}

TEST(Float16, KeepsRepresentableNumbersAndRoundsOthersToNearestEven) {
  for (const float value :
       {0.0f, 1.0f, -2.5f, 0x1.ffcp15f, 0x1p-14f, 0x1p-24f, -0x1.ff8p-15f, kInfinity, -kInfinity}) {
    EXPECT_THAT(Both(v1::ENCODING_FLOAT16, value), ElementsAre(value, value));
  }
  EXPECT_THAT(Both(v1::ENCODING_FLOAT16, 0x1.002p0f), ElementsAre(1, 1)) << "half-way, to even";
  EXPECT_THAT(Both(v1::ENCODING_FLOAT16, 0x1.006p0f), ElementsAre(0x1.008p0f, 0x1.008p0f))
      << "half-way, to even";
  EXPECT_THAT(Both(v1::ENCODING_FLOAT16, 0x1.8p-24f), ElementsAre(0x1p-23f, 0x1p-23f)) << "half-way, to even";
  EXPECT_THAT(Both(v1::ENCODING_FLOAT16, 0x1p-25f), ElementsAre(0, 0)) << "half-way, to even";
}

TEST(Float16, FiniteValuesStayFinite) {
  EXPECT_THAT(Both(v1::ENCODING_FLOAT16, 1e30f), ElementsAre(65504, 65504));
  EXPECT_THAT(Both(v1::ENCODING_FLOAT16, -65521), ElementsAre(-65504, -65504));
}

class CodecTest : public testing::TestWithParam<v1::Encoding> {};
INSTANTIATE_TEST_SUITE_P(All, CodecTest, testing::Values(v1::ENCODING_BFLOAT16, v1::ENCODING_FLOAT16),
                         [](const auto& encoding) { return std::string(EncodingName(encoding.param)); });

TEST_P(CodecTest, EveryNumberOf16BitsIsKept) {
  std::vector<char> all(size_t{2} << 16);
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    std::memcpy(all.data() + size_t{2} * bits, &half, 2);
  }
  std::vector<float> values(1 << 16);
  CodecOf(GetParam())->Decode(all.data(), absl::MakeSpan(values));
  const std::vector<char> again = Encoded(GetParam(), values);
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    ASSERT_EQ(std::memcmp(all.data() + 2 * i, again.data() + 2 * i, 2), 0) << i << ": " << values[i];
  }
}

TEST_P(CodecTest, TheErrorIsAtMostHalfAUnitInTheLastPlace) {
  const double bound = GetParam() == v1::ENCODING_BFLOAT16 ? 0x1p-8 : 0x1p-11;
  std::vector<float> values;
  Random random(7, "values");
  for (int i = 0; i < 4099; ++i) values.push_back(std::ldexp(random.NextUniform() - 0.5f, i % 24 - 10));
  const std::vector<float> back = ThereAndBack(GetParam(), values);
  for (size_t i = 0; i < values.size(); ++i) {
    const double allowed = std::max(std::abs(static_cast<double>(values[i])) * bound, 0x1p-25);
    ASSERT_LE(std::abs(static_cast<double>(back[i]) - values[i]), allowed) << values[i];
    ASSERT_EQ(back[i], ThereAndBack(GetParam(), {values[i]})[0]) << "same result alone and among others";
  }
}

TEST_P(CodecTest, ANanStaysANanWithItsSign) {
  for (const uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu}) {
    float nan;
    std::memcpy(&nan, &bits, sizeof nan);
    for (const float back : Both(GetParam(), nan)) {
      EXPECT_TRUE(std::isnan(back)) << bits;
      EXPECT_EQ(std::signbit(back), bits >> 31 == 1) << bits;
    }
  }
}

v1::Chunk ChunkOf(v1::Encoding encoding, int64_t count) {
  v1::Chunk chunk;
  chunk.set_encoding(encoding);
  chunk.set_count(count);
  return chunk;
}

TEST_P(CodecTest, AChunkMayBeCutAnywhereAndReadInParts) {
  const std::vector<float> values = {1, -2, 3, -4, 5, 6, 7};
  const std::vector<char> bytes = Encoded(GetParam(), values);
  ASSERT_EQ(bytes.size(), 16u) << "padded by two bytes to whole floats";
  const v1::Chunk chunk = ChunkOf(GetParam(), 7);
  for (size_t one = 0; one <= bytes.size(); ++one) {
    for (size_t other = one; other <= bytes.size(); ++other) {
      const absl::Span<const char> all(bytes);
      const absl::Span<const char> runs[] = {all.subspan(0, one), all.subspan(one, other - one),
                                             all.subspan(other)};
      ASSERT_EQ(CountElements(chunk, Payload(runs)).value(), 7);
      std::vector<float> whole(7), part(3);
      ASSERT_EQ(CopyElements(chunk, Payload(runs), 0, absl::MakeSpan(whole)), absl::OkStatus());
      ASSERT_EQ(CopyElements(chunk, Payload(runs), 2, absl::MakeSpan(part)), absl::OkStatus());
      ASSERT_EQ(whole, values) << one << " " << other;
      ASSERT_THAT(part, ElementsAre(3, -4, 5)) << one << " " << other;
    }
  }
}

TEST_P(CodecTest, APayloadThatDoesNotMatchItsChunkIsRefused) {
  const absl::Span<const char> eight("12345678", 8);
  for (const int64_t elements :
       {int64_t{0}, int64_t{-3}, int64_t{2}, int64_t{5}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(CountElements(ChunkOf(GetParam(), elements), {&eight, 1}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << elements;
  }
  EXPECT_EQ(CountElements(ChunkOf(GetParam(), 3), {&eight, 1}).value(), 3);
  EXPECT_EQ(CountElements(ChunkOf(GetParam(), 4), {&eight, 1}).value(), 4);
}

TEST(Codec, EveryEncodingHasAName) {
  for (const auto encoding : {v1::ENCODING_FLOAT32, v1::ENCODING_BFLOAT16, v1::ENCODING_FLOAT16,
                              v1::ENCODING_INT8, v1::ENCODING_TOPK, v1::ENCODING_ONEBIT}) {
    EXPECT_EQ(EncodingOf(EncodingName(encoding)), encoding);
  }
  EXPECT_EQ(EncodingOf("float8"), std::nullopt);
}

TEST(Codec, AnUnknownEncodingIsRefused) {
  const absl::Span<const char> eight("12345678", 8);
  EXPECT_THAT(CountElements(ChunkOf(static_cast<v1::Encoding>(9), 2), {&eight, 1}).status().message(),
              HasSubstr("encoding 9 is unknown"));
}

}  // namespace
}  // namespace cairn::net
