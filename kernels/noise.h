// Random changes of elements, written once: every backend compiles this file. Random numbers are counter-based, so
// that they depend on an element's place alone.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "common/core/host_device.h"
#include "kernels/formulas.h"
#include "kernels/ops.h"

namespace cairn::kernels {

// Four random words share a block of the generator, and so do the four elements whose places begin at a multiple
// of 4.
inline constexpr int64_t kWordsOfBlock = 4;

// Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958: two normal numbers from two words.
CAIRN_HOST_DEVICE inline void NormalPair(uint32_t a, uint32_t b, float& first, float& second) {
  const float uniform = (static_cast<float>(a >> 8) + 0.5f) * 0x1p-24f;  // in (0, 1)
  const float angle = static_cast<float>(b >> 8) * (0x1p-24f * 6.2831853071795865f);
  const float radius = std::sqrt(-2 * std::log(uniform));
  first = radius * std::cos(angle);
  second = radius * std::sin(angle);
}

// The change of an element: y = factor * x + offset, or only `offset` if the element is dropped.
struct Change {
  float factor = 1, offset = 0;
  bool dropped = false;

  CAIRN_HOST_DEVICE float Apply(float x) const { return dropped ? offset : factor * x + offset; }
  CAIRN_HOST_DEVICE float Gradient(float dy) const { return dropped ? 0 : factor * dy; }
};

// The changes of four elements by their block of random words.
class NoiseFormula {
 public:
  explicit NoiseFormula(const NoiseParams& params)
      : kind_(params.kind), amount_(params.amount), low_(params.low) {
    if (kind_ != NoiseKind::kAlphaDropout) return;
    const double rate = double{params.amount}, lowest = -double{kSeluAlpha} * double{kSeluScale};
    const double scale = 1 / std::sqrt((1 - rate) * (1 + rate * lowest * lowest));
    threshold_ = static_cast<uint64_t>(rate * 0x1p32);
    kept_ = {.factor = static_cast<float>(scale), .offset = static_cast<float>(-scale * lowest * rate)};
    lost_ = {.offset = static_cast<float>(scale * lowest * (1 - rate)), .dropped = true};
  }

  CAIRN_HOST_DEVICE std::array<Change, kWordsOfBlock> ChangesBy(const std::array<uint32_t, 4>& words) const {
    std::array<Change, kWordsOfBlock> changes;
    if (kind_ == NoiseKind::kAlphaDropout) {
      for (size_t i = 0; i < 4; ++i) changes[i] = words[i] < threshold_ ? lost_ : kept_;
      return changes;
    }
    if (kind_ == NoiseKind::kUniform) {
      for (size_t i = 0; i < 4; ++i) {
        changes[i] = {0, low_ + amount_ * (static_cast<float>(words[i] >> 8) * 0x1p-24f), true};
      }
      return changes;
    }
    for (size_t i = 0; i < 4; i += 2) {
      float first = 0, second = 0;
      NormalPair(words[i], words[i + 1], first, second);
      changes[i] = ByNormal(first);
      changes[i + 1] = ByNormal(second);
    }
    return changes;
  }

 private:
  CAIRN_HOST_DEVICE Change ByNormal(float normal) const {
    if (kind_ == NoiseKind::kAdd) return {1, amount_ * normal, false};
    return {1 + amount_ * normal, 0, false};
  }

  NoiseKind kind_;
  float amount_, low_;
  // kAlphaDropout: an element whose word is below the threshold is dropped.
  uint64_t threshold_ = 0;
  Change kept_, lost_;
};

// INVALID_ARGUMENT for a tensor that is not row-major, and for an amount that the kind does not allow.
absl::Status CheckNoise(const NoiseParams& params);

}  // namespace cairn::kernels
