// One bit per element, its sign bit, which selects one of two means: the mean of the positive elements of its
// block (sign bit 0) or the mean of the negative ones (sign bit 1): F. Seide et al., "1-bit stochastic
// gradient descent and its application to data-parallel distributed training of speech DNNs", 2014; they use
// the columns of a matrix, we use blocks of 512 elements.
//
//   payload   two floats for each block | the sign bits, the first element in the lowest bit | zeros up to a
//   whole float
#include "absl/strings/str_cat.h"
#include "common/net/gradient/parts.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cairn::net {
namespace {

constexpr int64_t kOneBitBlock = 512;
constexpr int64_t kOneBitChunk = int64_t{128} << 10;

struct Means {
  float without_sign = 0, with_sign = 0;
};

// Sums the elements in several lanes, which are then added in a fixed order. The sums are doubles, which no
// sum of floats overflows.
CAIRN_INLINE Means MeansOfBody(const float* values, int64_t count) {
  constexpr int64_t kLanes = 16;
  double without[kLanes] = {}, with[kLanes] = {};
  uint32_t signs[kLanes] = {};
  const auto add = [&](int64_t lane, float value) __attribute__((always_inline)) {
    const uint32_t sign = std::bit_cast<uint32_t>(value) >> 31;
    without[lane] += sign == 0 ? value : 0.0f;
    with[lane] += sign == 0 ? 0.0f : value;
    signs[lane] += sign;
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) add(lane, values[i + lane]);
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) add(lane, values[i]);
  double sum_without = 0, sum_with = 0;
  int64_t num_with = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    sum_without += without[lane];
    sum_with += with[lane];
    num_with += signs[lane];
  }
  const int64_t num_without = count - num_with;
  return {num_without == 0 ? 0 : static_cast<float>(sum_without / static_cast<double>(num_without)),
          num_with == 0 ? 0 : static_cast<float>(sum_with / static_cast<double>(num_with))};
}
CAIRN_VECTOR_FUNCTION(MeansOf, MeansOfBody)

void PackSigns(const float* values, int64_t count, char* to) {
  int64_t i = 0;
#if defined(__x86_64__)
  for (; i + 8 <= count; i += 8) {
    const int low = _mm_movemask_ps(_mm_loadu_ps(values + i));
    const int high = _mm_movemask_ps(_mm_loadu_ps(values + i + 4));
    to[i / 8] = static_cast<char>(low | high << 4);
  }
#endif
  for (; i < count; i += 8) {
    uint32_t bits = 0;
    for (int64_t bit = 0; bit < std::min<int64_t>(8, count - i); ++bit) {
      bits |= std::bit_cast<uint32_t>(values[i + bit]) >> 31 << bit;
    }
    to[i / 8] = static_cast<char>(bits);
  }
}

// Decodes count / 8 whole bytes.
CAIRN_INLINE void ChooseBody(const char* from, int64_t count, Means means, float* to) {
  for (int64_t byte = 0; byte < count / 8; ++byte) {
    const int32_t bits = static_cast<unsigned char>(from[byte]);
    for (int bit = 0; bit < 8; ++bit) {
      to[byte * 8 + bit] = (bits & (1 << bit)) == 0 ? means.without_sign : means.with_sign;
    }
  }
}
CAIRN_VECTOR_FUNCTION(Choose, ChooseBody)

class OneBit final : public GradientCodec {
 public:
  int64_t block_elements() const override { return kOneBitBlock; }
  int64_t chunk_elements() const override { return kOneBitChunk; }
  bool wants_feedback() const override { return true; }
  Selection Select(absl::Span<const float>, int64_t) const override { return {}; }

  int64_t MostBytes(const Cut& cut, int64_t) const override {
    return MeanBytes(cut) + WholeFloats((cut.count + 7) / 8);
  }

  int64_t Encode(absl::Span<const float> variable, const Selection&, const Cut& cut,
                 char* to) const override {
    const auto size = static_cast<int64_t>(variable.size());
    for (int64_t block = 0; block < BlocksOf(cut, kOneBitBlock); ++block) {
      // The means of the whole block, even if the chunk contains only a part of the block.
      const int64_t first = (cut.first / kOneBitBlock + block) * kOneBitBlock;
      PutAt(to, block, MeansOf(variable.data() + first, std::min(kOneBitBlock, size - first)));
    }
    char* const bits = to + MeanBytes(cut);
    const int64_t bytes = (cut.count + 7) / 8;
    PackSigns(variable.data() + cut.first, cut.count, bits);
    std::memset(bits + bytes, 0, static_cast<size_t>(WholeFloats(bytes) - bytes));
    return MostBytes(cut, 0);
  }

  absl::Status Check(const Cut& cut, absl::Span<const char> payload) const override {
    if (static_cast<int64_t>(payload.size()) != MostBytes(cut, 0)) {
      return absl::InvalidArgumentError(absl::StrCat("a chunk of ", payload.size(),
                                                     " bytes is not a list of ", cut.count,
                                                     " signs, which take ", MostBytes(cut, 0)));
    }
    for (int64_t block = 0; block < BlocksOf(cut, kOneBitBlock); ++block) {
      const auto means = At<Means>(payload.data(), block);
      if (!IsFinite(means.without_sign) || !IsFinite(means.with_sign)) {
        return absl::InvalidArgumentError(absl::StrCat("a chunk of signs: the means of block ", block,
                                                       " cannot be ", means.without_sign, " and ",
                                                       means.with_sign));
      }
    }
    return absl::OkStatus();
  }

  void Decode(const Cut& cut, absl::Span<const char> payload, int64_t skip,
              absl::Span<float> to) const override {
    const char* const bits = payload.data() + MeanBytes(cut);
    ForEachBlock(cut, kOneBitBlock, skip, static_cast<int64_t>(to.size()),
                 [&](int64_t block, int64_t begin, int64_t end) {
                   const auto means = At<Means>(payload.data(), block);
                   const auto one = [&](int64_t i) {
                     const bool sign = (static_cast<unsigned char>(bits[i / 8]) >> (i % 8) & 1) != 0;
                     to[static_cast<size_t>(i - skip)] = sign ? means.with_sign : means.without_sign;
                   };
                   for (; begin < end && begin % 8 != 0; ++begin) one(begin);
                   const int64_t whole = (end - begin) / 8 * 8;
                   Choose(bits + begin / 8, whole, means, to.data() + (begin - skip));
                   for (begin += whole; begin < end; ++begin) one(begin);
                 });
  }

 private:
  static int64_t MeanBytes(const Cut& cut) {
    return BlocksOf(cut, kOneBitBlock) * static_cast<int64_t>(sizeof(Means));
  }
};

}  // namespace

const GradientCodec& OneBitCodec() {
  static const OneBit codec;
  return codec;
}

}  // namespace cairn::net
