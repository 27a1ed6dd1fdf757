#include "embedding/store/unique_keys.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "common/core/status.h"
#include "embedding/keys/key_hash.h"

namespace cairn::embedding {
namespace {
constexpr uint64_t kUpper = uint64_t{0xffffffff} << 32;
}  // namespace

void UniqueKeys::Compute(absl::Span<const int64_t> batch) {
  CAIRN_CHECK(batch.size() <= std::numeric_limits<int32_t>::max());
  // Batches of a job have about equally many distinct keys. A table that is not larger than they need stays in the
  // processor's caches.
  constexpr size_t kMinKeys = 512;
  const size_t expected = std::min(batch.size(), std::max(kMinKeys, keys_.size() + keys_.size() / 4));
  entries_.assign(std::bit_ceil(2 * expected + 1), 0);
  uint64_t mask = entries_.size() - 1;
  keys_.clear();
  positions_.resize(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    const uint64_t hash = HashKey(batch[i]);
    for (uint64_t at = hash & mask;; at = (at + 1) & mask) {
      const uint64_t entry = entries_[at];
      if (entry == 0) {
        keys_.push_back(batch[i]);
        positions_[i] = static_cast<int32_t>(keys_.size() - 1);
        entries_[at] = (hash & kUpper) | keys_.size();
        if (2 * keys_.size() > mask) {
          Grow();
          mask = entries_.size() - 1;
        }
        break;
      }
      const auto found = static_cast<uint32_t>(entry) - 1;
      if (((entry ^ hash) & kUpper) == 0 && keys_[found] == batch[i]) {
        positions_[i] = static_cast<int32_t>(found);
        break;
      }
    }
  }
}

void UniqueKeys::Grow() {
  entries_.assign(2 * entries_.size(), 0);
  const uint64_t mask = entries_.size() - 1;
  for (size_t i = 0; i < keys_.size(); ++i) {
    const uint64_t hash = HashKey(keys_[i]);
    uint64_t at = hash & mask;
    while (entries_[at] != 0) at = (at + 1) & mask;
    entries_[at] = (hash & kUpper) | (i + 1);
  }
}

}  // namespace cairn::embedding
