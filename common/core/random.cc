#include "common/core/random.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace cairn {

uint64_t StreamOf(absl::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001B3;
  }
  return hash;
}

uint32_t Random::NextUint32() {
  if (used_ == 4) {
    words_ = Philox4x32({static_cast<uint32_t>(block_), static_cast<uint32_t>(block_ >> 32),
                         static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                        {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    ++block_;
    used_ = 0;
  }
  return words_[static_cast<size_t>(used_++)];
}

uint32_t Random::NextBelow(uint32_t bound) {
  uint64_t product = uint64_t{NextUint32()} * bound;
  if (static_cast<uint32_t>(product) < bound) {
    const uint32_t threshold = -bound % bound;
    while (static_cast<uint32_t>(product) < threshold) product = uint64_t{NextUint32()} * bound;
  }
  return static_cast<uint32_t>(product >> 32);
}

float Random::NextUniform() {
  return static_cast<float>(NextUint32() >> 8) * 0x1p-24f;
}

float Random::NextNormal() {
  const float u = 1.0f - NextUniform();  // in (0, 1], so that the logarithm is finite
  const float v = NextUniform();
  return std::sqrt(-2.0f * std::log(u)) * std::cos(2.0f * std::numbers::pi_v<float> * v);
}

std::vector<uint32_t> RandomPermutation(uint32_t count, Random& random) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.NextBelow(i)]);
  return order;
}

}  // namespace cairn
