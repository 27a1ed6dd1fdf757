// Notices writes that nothing announces: a program may write through `tensor.data` into memory that the session shares
// with it, and PyTorch counts no version there. Keeps a hash of a few elements of each variable, so a check costs as
// much for a large variable as for a small one, and misses a write to elements in between.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace cairn::python {

class Samples {
 public:
  // From here on, the variable is expected to keep these values.
  void Record(size_t variable, std::span<const float> values) {
    if (variable >= hashes_.size()) hashes_.resize(variable + 1);
    hashes_[variable] = Hash(values);
  }
  // Whether the sample differs from the recorded one. False for a variable without one.
  bool Differs(size_t variable, std::span<const float> values) const {
    return variable < hashes_.size() && hashes_[variable].has_value() && *hashes_[variable] != Hash(values);
  }
  void Clear() { hashes_.clear(); }

 private:
  // FNV-1a over the bits of up to kElements elements, the first and the last among them.
  static uint64_t Hash(std::span<const float> values) {
    constexpr size_t kElements = 16;
    uint64_t hash = 14695981039346656037ULL;
    const size_t count = std::min(values.size(), kElements);
    for (size_t i = 0; i < count; ++i) {
      const size_t place = count == 1 ? 0 : i * (values.size() - 1) / (count - 1);
      hash = (hash ^ std::bit_cast<uint32_t>(values[place])) * 1099511628211ULL;
    }
    return hash;
  }

  std::vector<std::optional<uint64_t>> hashes_;  // [variable]
};

}  // namespace cairn::python
