#include "embedding/initializers/row_initializer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "embedding/keys/key_hash.h"
#include "embedding/simd/row_loop.h"
#include "optim/simd/loop.h"

namespace cairn::embedding {
namespace {

static_assert(std::endian::native == std::endian::little, "the even columns are the lower halves");

// The cumulative standard normal distribution at -2.
constexpr float kBelowMinusTwo = 0.022750131948179f;

// Calls value(bits) for the 32 bits of each column, and stores what it returns. The lambda captures references only:
// it is copied once per call, and a copy of several numbers would stall behind the stores of its parts.
template <typename Value>
void FillColumns(optim::Isa isa, uint64_t start, absl::Span<float> row, const Value& value) {
  const auto fill = [&]() CAIRN_INLINE_LAMBDA {
    constexpr int64_t kBlock = 16;
    uint64_t numbers[kBlock / 2];
    uint32_t bits[kBlock];
    float values[kBlock];
    uint64_t state = start;
    float* to = row.data();
    for (auto left = static_cast<int64_t>(row.size()); left > 0; left -= kBlock, to += kBlock) {
      CAIRN_KEEP_LOOP
      for (uint64_t i = 0; i < kBlock / 2; ++i) numbers[i] = Mix64(state + (i + 1) * kSplitMixGamma);
      state += kBlock / 2 * kSplitMixGamma;
      std::memcpy(bits, numbers, sizeof(bits));
      CAIRN_KEEP_LOOP
      for (int64_t i = 0; i < kBlock; ++i) values[i] = value(bits[i]);
      if (left >= kBlock) {
        std::memcpy(to, values, sizeof(values));
      } else {
        std::copy_n(values, left, to);
      }
    }
  };
  optim::RunOn(isa, [&fill]() CAIRN_INLINE_LAMBDA { fill(); });
}

// In [-1, 1), from the upper 24 bits.
CAIRN_INLINE_LAMBDA inline float SignedUniform(uint32_t bits) {
  return static_cast<float>(static_cast<int32_t>(bits >> 8)) * 0x1p-23f - 1;
}

// The natural logarithm of a normal number above 0.
CAIRN_INLINE_LAMBDA inline float Log(float x) {
  // x = 2^exponent m, m in [sqrt(1/2), sqrt(2)); log(m) = 2 artanh((m - 1) / (m + 1)).
  constexpr uint32_t kOne = 0x3F800000, kRootOfHalf = 0x3F3504F3;
  const uint32_t shifted = std::bit_cast<uint32_t>(x) + (kOne - kRootOfHalf);
  const auto exponent = static_cast<float>(static_cast<int32_t>(shifted >> 23) - 127);
  const float m = std::bit_cast<float>((shifted & 0x007FFFFF) + kRootOfHalf);
  const float s = (m - 1) / (m + 1), z = s * s;
  const float artanh = s * (1 + z * (1 / 3.0f + z * (1 / 5.0f + z * (1 / 7.0f + z * (1 / 9.0f)))));
  return exponent * 0.693147180559945f + 2 * artanh;
}

// `yes` or `no` without a branch, which would keep GCC 12 from vectorising the loop.
CAIRN_INLINE_LAMBDA inline float Select(bool condition, float yes, float no) {
  const uint32_t mask = -static_cast<uint32_t>(condition);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(yes) & mask) | (std::bit_cast<uint32_t>(no) & ~mask));
}

// The x at which the standard normal distribution has `p` of its mass above x, for p in [2^-33, 1/2].
CAIRN_INLINE_LAMBDA inline float UpperQuantile(float p) {
  const float q = 0.5f - p;
  const float r = 0.180625f - q * q;
  const float middle = q * (((59.109374720f * r + 159.29113202f) * r + 50.434271938f) * r + 3.3871327179f) /
                       (((67.187563600f * r + 78.757757664f) * r + 17.895169469f) * r + 1.0f);
  const float t = std::sqrt(-Log(p)) - 1.6f;
  const float tail = (((0.17023821103f * t + 1.3067284816f) * t + 2.7568153900f) * t + 1.4234372777f) /
                     ((0.12021132975f * t + 0.73700164250f) * t + 1.0f);
  return Select(q <= 0.425f, middle, tail);
}

// In (0, 1/2], from the lower 31 bits. The upper bit is the sign.
CAIRN_INLINE_LAMBDA inline float HalfUniform(uint32_t bits) {
  return (static_cast<float>(static_cast<int32_t>(bits & 0x7FFFFFFF)) + 0.5f) * 0x1p-32f;
}
CAIRN_INLINE_LAMBDA inline float WithSign(uint32_t bits, float magnitude) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) ^ (bits & 0x80000000));
}

}  // namespace

RowInitializer::RowInitializer(const RowDistribution& distribution, uint64_t seed, absl::string_view table,
                               optim::Isa isa)
    : kind_(distribution.kind),
      center_(static_cast<float>(distribution.center)),
      spread_(static_cast<float>(distribution.spread)),
      salt_(HashString(table, seed)),
      isa_(isa) {}

void RowInitializer::Fill(int64_t key, absl::Span<float> row) const {
  const uint64_t start = Mix64(static_cast<uint64_t>(key) + salt_);
  const float center = center_, spread = spread_;
  switch (kind_) {
    case RowDistribution::Kind::kConstant:
      return std::fill(row.begin(), row.end(), center);
    case RowDistribution::Kind::kUniform:
      return FillColumns(isa_, start, row, [=](uint32_t bits) CAIRN_INLINE_LAMBDA {
        return center + spread * SignedUniform(bits);
      });
    case RowDistribution::Kind::kNormal:
      return FillColumns(isa_, start, row, [=](uint32_t bits) CAIRN_INLINE_LAMBDA {
        return center + spread * WithSign(bits, UpperQuantile(HalfUniform(bits)));
      });
    case RowDistribution::Kind::kTruncatedNormal:
      return FillColumns(isa_, start, row, [=](uint32_t bits) CAIRN_INLINE_LAMBDA {
        const float p = kBelowMinusTwo + (1 - 2 * kBelowMinusTwo) * HalfUniform(bits);
        return center + spread * WithSign(bits, UpperQuantile(p));
      });
  }
}

}  // namespace cairn::embedding
