// Eight bits per element: the nearest multiple (ties to even) of the scale of its block, which is 1/127 of
// the block's largest magnitude. The error is at most half a scale. Such an error needs no feedback.
//
//   payload   scales, one float for each block | one signed byte for each element | zeros up to a whole float
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/net/gradient/parts.h"

namespace cairn::net {
namespace {

constexpr int64_t kInt8Block = 256;
constexpr int64_t kInt8Chunk = int64_t{128} << 10;
// After this is added to a float of magnitude below 2^22, the lowest bits of the sum are the nearest integer
// (ties to even).
constexpr float kRounding = 0x1.8p23f;

// The largest scale: 127 times this scale is still a finite float.
constexpr float kLargestScale = 0x1.0204p121f;

// The scale of a block. A subnormal scale, whose reciprocal may be infinite, is replaced by 0, so that all
// elements of the block are encoded as 0.
CAIRN_INLINE float ScaleOfBody(const float* values, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, MagnitudeOf(values[i]));
  const float scale = std::min(std::bit_cast<float>(largest) / 127, kLargestScale);
  return scale < std::numeric_limits<float>::min() ? 0 : scale;
}
CAIRN_VECTOR_FUNCTION(ScaleOf, ScaleOfBody)

CAIRN_INLINE void QuantizeBody(const float* values, int64_t count, float per_scale, char* to) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<int32_t>(values[i] * per_scale + kRounding);
    to[i] = static_cast<char>(bits - std::bit_cast<int32_t>(kRounding));
  }
}
CAIRN_VECTOR_FUNCTION(Quantize, QuantizeBody)

CAIRN_INLINE void MultiplyBody(const char* from, int64_t count, float scale, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(static_cast<signed char>(from[i])) * scale;
}
CAIRN_VECTOR_FUNCTION(Multiply, MultiplyBody)

class Int8 final : public GradientCodec {
 public:
  int64_t block_elements() const override { return kInt8Block; }
  int64_t chunk_elements() const override { return kInt8Chunk; }
  bool wants_feedback() const override { return false; }
  Selection Select(absl::Span<const float>, int64_t) const override { return {}; }

  int64_t MostBytes(const Cut& cut, int64_t) const override {
    return ScaleBytes(cut) + WholeFloats(cut.count);
  }

  int64_t Encode(absl::Span<const float> variable, const Selection&, const Cut& cut,
                 char* to) const override {
    char* const bytes = to + ScaleBytes(cut);
    const auto size = static_cast<int64_t>(variable.size());
    ForEachBlock(cut, kInt8Block, 0, cut.count, [&](int64_t block, int64_t begin, int64_t end) {
      // The scale of the whole block, even if the chunk contains only a part of the block.
      const int64_t first = (cut.first / kInt8Block + block) * kInt8Block;
      const float scale = ScaleOf(variable.data() + first, std::min(kInt8Block, size - first));
      PutAt(to, block, scale);
      Quantize(variable.data() + cut.first + begin, end - begin, scale == 0 ? 0 : 1 / scale, bytes + begin);
    });
    std::memset(bytes + cut.count, 0, static_cast<size_t>(WholeFloats(cut.count) - cut.count));
    return MostBytes(cut, 0);
  }

  absl::Status Check(const Cut& cut, absl::Span<const char> payload) const override {
    if (static_cast<int64_t>(payload.size()) != MostBytes(cut, 0)) {
      return absl::InvalidArgumentError(absl::StrCat("a chunk of ", payload.size(),
                                                     " bytes is not a list of ", cut.count,
                                                     " numbers in int8, which take ", MostBytes(cut, 0)));
    }
    for (int64_t block = 0; block < BlocksOf(cut, kInt8Block); ++block) {
      const auto scale = At<float>(payload.data(), block);
      if (!(scale >= 0) || !IsFinite(scale)) {
        return absl::InvalidArgumentError(
            absl::StrCat("a chunk in int8: the scale of block ", block, " cannot be ", scale));
      }
    }
    return absl::OkStatus();
  }

  void Decode(const Cut& cut, absl::Span<const char> payload, int64_t skip,
              absl::Span<float> to) const override {
    const char* const bytes = payload.data() + ScaleBytes(cut);
    ForEachBlock(cut, kInt8Block, skip, static_cast<int64_t>(to.size()),
                 [&](int64_t block, int64_t begin, int64_t end) {
                   Multiply(bytes + begin, end - begin, At<float>(payload.data(), block),
                            to.data() + (begin - skip));
                 });
  }

 private:
  static int64_t ScaleBytes(const Cut& cut) {
    return BlocksOf(cut, kInt8Block) * static_cast<int64_t>(sizeof(float));
  }
};

}  // namespace

const GradientCodec& Int8Codec() {
  static const Int8 codec;
  return codec;
}

}  // namespace cairn::net
