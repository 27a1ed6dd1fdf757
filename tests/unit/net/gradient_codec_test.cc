#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "common/core/random.h"
#include "common/net/gradient/codec.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/received_elements.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Numbers(int64_t count) {
  std::vector<float> values;
  Random random(7, "gradient");
  for (int64_t i = 0; i < count; ++i)
    values.push_back(std::ldexp(random.NextUniform() - 0.5f, static_cast<int>(i % 7)));
  return values;
}

std::string Encoded(const GradientCodec& codec, const std::vector<float>& variable, const Cut& cut,
                    int64_t most) {
  std::string payload(static_cast<size_t>(codec.MostBytes(cut, most)), '\x55');
  payload.resize(
      static_cast<size_t>(codec.Encode(variable, codec.Select(variable, most), cut, payload.data())));
  EXPECT_EQ(payload.size() % 4, 0u);
  return payload;
}

std::vector<float> Decoded(const GradientCodec& codec, const std::string& payload, const Cut& cut) {
  EXPECT_EQ(codec.Check(cut, payload), absl::OkStatus());
  std::vector<float> values(static_cast<size_t>(cut.count), 77.0f);
  codec.Decode(cut, payload, 0, absl::MakeSpan(values));
  return values;
}

std::vector<float> ThereAndBack(const GradientCodec& codec, const std::vector<float>& variable,
                                int64_t most = 1 << 30) {
  const Cut all = {0, static_cast<int64_t>(variable.size())};
  return Decoded(codec, Encoded(codec, variable, all, most), all);
}

template <typename T>
void Put(std::string& payload, size_t at, T value) {
  std::memcpy(payload.data() + at, &value, sizeof value);
}

// Reference implementations: what each encoding makes of a variable, element by element, as its header says.
std::vector<float> Int8Reference(const std::vector<float>& variable) {
  std::vector<float> result;
  for (size_t begin = 0; begin < variable.size(); begin += 256) {
    const size_t end = std::min(variable.size(), begin + 256);
    float largest = 0;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(variable[i]));
    const float scale = largest / 127;
    for (size_t i = begin; i < end; ++i) result.push_back(std::nearbyint(variable[i] * (1 / scale)) * scale);
  }
  return result;
}

std::vector<float> OneBitReference(const std::vector<float>& variable) {
  std::vector<float> result;
  for (size_t begin = 0; begin < variable.size(); begin += 512) {
    const size_t end = std::min(variable.size(), begin + 512);
    double sums[2] = {}, counts[2] = {};
    for (size_t i = begin; i < end; ++i) {
      sums[std::signbit(variable[i])] += variable[i];
      counts[std::signbit(variable[i])] += 1;
    }
    for (size_t i = begin; i < end; ++i) {
      const bool sign = std::signbit(variable[i]);
      result.push_back(static_cast<float>(sums[sign] / counts[sign]));
    }
  }
  return result;
}

std::vector<float> TopKReference(const std::vector<float>& variable, int64_t most) {
  std::vector<size_t> order(variable.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::abs(variable[a]) > std::abs(variable[b]); });
  std::vector<float> result(variable.size());
  for (size_t i = 0; i < std::min(order.size(), static_cast<size_t>(most)); ++i)
    result[order[i]] = variable[order[i]];
  return result;
}

TEST(Int8, IsTheNearestMultipleOfTheBlocksScale) {
  for (const int64_t size : {1, 3, 255, 256, 257, 1000, 70001}) {
    const std::vector<float> variable = Numbers(size);
    EXPECT_EQ(ThereAndBack(Int8Codec(), variable), Int8Reference(variable)) << size;
  }
}

TEST(Int8, HalvesRoundToEvenAndTheLargestIsKept) {
  EXPECT_THAT(ThereAndBack(Int8Codec(), {127, -127, 0.5f, 1.5f, -2.5f, 0.49f}),
              ElementsAre(127, -127, 0, 2, -2, 0));
}

TEST(Int8, ABlockOfZerosOrTinyNumbersIsZero) {
  std::vector<float> variable(256, 0.0f);
  variable.push_back(1e-40f);
  variable.push_back(-1e-44f);
  EXPECT_THAT(ThereAndBack(Int8Codec(), variable), Each(0.0f));
}

TEST(Int8, TheLargestFloatsStayFinite) {
  const float largest = std::numeric_limits<float>::max();
  for (const float value : ThereAndBack(Int8Codec(), {largest, -largest, 1}))
    EXPECT_TRUE(std::isfinite(value));
}

TEST(OneBit, IsTheMeanOfTheElementsWithTheSameSign) {
  for (const int64_t size : {1, 3, 8, 511, 512, 513, 1000, 70001}) {
    const std::vector<float> variable = Numbers(size), expected = OneBitReference(variable);
    const std::vector<float> found = ThereAndBack(OneBitCodec(), variable);
    ASSERT_EQ(found.size(), expected.size());
    // The codec sums in another order, so the means may differ by the rounding to a float.
    for (size_t i = 0; i < found.size(); ++i) ASSERT_FLOAT_EQ(found[i], expected[i]) << size << " " << i;
  }
  EXPECT_THAT(ThereAndBack(OneBitCodec(), {1, 3, -4, 8, -0.0f}), ElementsAre(4, 4, -2, 4, -2));
}

TEST(OneBit, ZerosAreZeroAndTheLargestFloatsStayFinite) {
  EXPECT_THAT(ThereAndBack(OneBitCodec(), std::vector<float>(600, 0.0f)), Each(0.0f));
  const float largest = std::numeric_limits<float>::max();
  EXPECT_THAT(ThereAndBack(OneBitCodec(), {largest, largest, -largest}),
              ElementsAre(largest, largest, -largest));
}

TEST(TopK, KeepsTheLargestByMagnitudeUnchanged) {
  for (const int64_t size : {1, 3, 31, 32, 33, 1000, 30001}) {
    const std::vector<float> variable = Numbers(size);
    for (const int64_t most : {int64_t{1}, (size + 99) / 100, size / 2 + 1, size, size + 5}) {
      EXPECT_EQ(ThereAndBack(TopKCodec(), variable, most), TopKReference(variable, most))
          << size << " " << most;
    }
  }
}

TEST(TopK, TheFirstOfEqualElementsAreTaken) {
  const std::vector<float> variable = {1, -2, 2, 5, -2, 2, 0.5f};
  EXPECT_THAT(ThereAndBack(TopKCodec(), variable, 3), ElementsAre(0, -2, 2, 5, 0, 0, 0));
  EXPECT_EQ(ThereAndBack(TopKCodec(), variable, 4), TopKReference(variable, 4));
  EXPECT_THAT(ThereAndBack(TopKCodec(), std::vector<float>(5, -1.0f), 2), ElementsAre(-1, -1, 0, 0, 0));
}

TEST(TopK, MagnitudesThatDifferInTheLastBitAreDistinguished) {
  std::vector<float> variable(100, 1.0f);
  variable[70] = std::nextafter(-1.0f, -2.0f);
  EXPECT_EQ(ThereAndBack(TopKCodec(), variable, 1), TopKReference(variable, 1));
  variable[71] = 1e-45f;
  EXPECT_EQ(ThereAndBack(TopKCodec(), variable, 99), TopKReference(variable, 99));
}

TEST(TopK, ZerosAreNotSent) {
  const std::vector<float> variable = {0, 3, -0.0f, 0};
  EXPECT_EQ(Encoded(TopKCodec(), variable, {0, 4}, 4).size(), 8u);
  EXPECT_EQ(Encoded(TopKCodec(), {0, 0}, {0, 2}, 1).size(), 0u);
}

class GradientCodecTest : public testing::TestWithParam<v1::Encoding> {
 protected:
  const GradientCodec& codec() const { return *GradientCodecOf(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(All, GradientCodecTest,
                         testing::Values(v1::ENCODING_INT8, v1::ENCODING_TOPK, v1::ENCODING_ONEBIT),
                         [](const auto& encoding) { return std::string(EncodingName(encoding.param)); });

TEST_P(GradientCodecTest, TheResultDoesNotDependOnTheCuts) {
  const std::vector<float> variable = Numbers(3000);
  const std::vector<float> whole = ThereAndBack(codec(), variable, 300);
  for (const int64_t cut : {int64_t{1}, int64_t{7}, int64_t{256}, int64_t{700}, int64_t{2999}}) {
    std::vector<float> parts;
    for (const Cut& part : {Cut{0, cut}, Cut{cut, 3000 - cut}}) {
      const std::string payload = Encoded(codec(), variable, part, 300);
      const std::vector<float> decoded =
          Decoded(codec(), payload, {part.first % codec().block_elements(), part.count});
      parts.insert(parts.end(), decoded.begin(), decoded.end());
    }
    EXPECT_EQ(parts, whole) << cut;
  }
}

TEST_P(GradientCodecTest, APartOfAChunkCanBeDecoded) {
  const std::vector<float> variable = Numbers(2000);
  const Cut cut = {300, 1500};
  const std::string payload = Encoded(codec(), variable, cut, 400);
  const std::vector<float> whole = Decoded(codec(), payload, cut);
  for (const int64_t skip : {0, 1, 13, 212, 1024, 1499}) {
    std::vector<float> part(static_cast<size_t>(std::min<int64_t>(300, 1500 - skip)));
    codec().Decode(cut, payload, skip, absl::MakeSpan(part));
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + skip)) << skip;
  }
}

TEST_P(GradientCodecTest, TheLargestChunkFitsIntoOneFragmentOfADataStream) {
  const Cut cut = {codec().block_elements() - 1, codec().chunk_elements()};
  EXPECT_LE(codec().MostBytes(cut, cut.count), 256 << 10);
}

v1::Chunk EncodedChunk(v1::Encoding encoding, int64_t count, int32_t phase = 0) {
  v1::Chunk chunk;
  chunk.set_encoding(encoding);
  chunk.set_count(count);
  chunk.set_phase(phase);
  return chunk;
}

absl::Status Received(const v1::Chunk& chunk, const std::string& payload) {
  const absl::Span<const char> run(payload);
  return ReceivedElements::Of(chunk, {&run, 1}).status();
}

TEST_P(GradientCodecTest, AChunkMayComeInAnyRunsAndOtherSizesAreRefused) {
  const std::vector<float> variable = Numbers(700);
  const std::string payload = Encoded(codec(), variable, {0, 700}, 9);
  const v1::Chunk chunk = EncodedChunk(GetParam(), 700);
  const absl::Span<const char> all(payload);
  const absl::Span<const char> runs[] = {all.subspan(0, 3), all.subspan(3, 0), all.subspan(3, 10),
                                         all.subspan(13)};
  const auto elements = ReceivedElements::Of(chunk, Payload(runs));
  ASSERT_EQ(elements.status(), absl::OkStatus());
  EXPECT_EQ(elements->count(), 700);
  std::vector<float> values(700);
  EXPECT_EQ(elements->Copy(0, absl::MakeSpan(values)), absl::OkStatus());
  EXPECT_EQ(values, ThereAndBack(codec(), variable, 9));
  for (const size_t less : {size_t{1}, size_t{4}, payload.size() - 1}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Received(chunk, payload.substr(less)))) << less;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Received(chunk, payload + "1234")));
}

TEST_P(GradientCodecTest, AnImpossibleCountOrPhaseIsRefused) {
  const int64_t most = codec().chunk_elements();
  for (const int64_t count : {int64_t{0}, int64_t{-5}, most + 1, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(Received(EncodedChunk(GetParam(), count), "").message(), HasSubstr("a chunk of")) << count;
  }
  for (const int32_t phase :
       {-1, static_cast<int32_t>(codec().block_elements()), std::numeric_limits<int32_t>::max()}) {
    EXPECT_THAT(Received(EncodedChunk(GetParam(), 5, phase), "12345678").message(),
                HasSubstr(" of a block: a chunk has 1 to "))
        << phase;
  }
}

TEST(Int8, AnInvalidScaleIsRefused) {
  std::string payload = Encoded(Int8Codec(), Numbers(300), {0, 300}, 0);
  for (const float scale : {kNan, kInf, -kInf, -1.0f}) {
    Put(payload, 4, scale);
    EXPECT_THAT(Received(EncodedChunk(v1::ENCODING_INT8, 300), payload).message(),
                HasSubstr("the scale of block 1 cannot be"));
  }
}

TEST(OneBit, AMeanThatIsNotFiniteIsRefused) {
  std::string payload = Encoded(OneBitCodec(), Numbers(600), {0, 600}, 0);
  for (const float mean : {kNan, kInf, -kInf}) {
    std::string bad = payload;
    Put(bad, 12, mean);
    EXPECT_THAT(Received(EncodedChunk(v1::ENCODING_ONEBIT, 600), bad).message(),
                HasSubstr("the means of block 1 cannot be"));
  }
}

std::string Pairs(const std::vector<std::pair<uint32_t, float>>& pairs) {
  std::string payload(pairs.size() * 8, '\0');
  for (size_t i = 0; i < pairs.size(); ++i) {
    Put(payload, 8 * i, pairs[i].first);
    Put(payload, 8 * i + 4, pairs[i].second);
  }
  return payload;
}

TEST(TopK, IndicesOutOfRangeOutOfOrderOrDuplicateAreRefused) {
  const v1::Chunk chunk = EncodedChunk(v1::ENCODING_TOPK, 5);
  EXPECT_EQ(Received(chunk, Pairs({{0, 1}, {4, 2}})), absl::OkStatus());
  EXPECT_THAT(Received(chunk, Pairs({{0, 1}, {5, 2}})).message(),
              HasSubstr("index 5, but the number of elements is 5"));
  EXPECT_THAT(Received(chunk, Pairs({{0xffffffff, 2}})).message(),
              HasSubstr("index 4294967295, but the number of elements is 5"));
  EXPECT_THAT(Received(chunk, Pairs({{3, 1}, {2, 2}})).message(), HasSubstr("index 2 cannot follow index 3"));
  EXPECT_THAT(Received(chunk, Pairs({{3, 1}, {3, 2}})).message(), HasSubstr("index 3 cannot follow index 3"));
  EXPECT_THAT(Received(chunk, Pairs({{3, kNan}})).message(), HasSubstr("nan at index 3"));
  EXPECT_THAT(Received(chunk, Pairs({{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}})).message(),
              HasSubstr("is not a list of indices"));
}

TEST(GradientCodec, ValuesHaveNoGradientCodec) {
  EXPECT_THAT(CheckEncoding(v1::ENCODING_INT8).message(), HasSubstr("values cannot be sent in int8"));
  EXPECT_EQ(GradientCodecOf(v1::ENCODING_BFLOAT16), nullptr);
}

}  // namespace
}  // namespace cairn::net
