// Merges repeated keys of a batch: its distinct keys in the order of their first appearance.
//
// Workers pull each row of a batch once, and servers update it once. The order depends on the batch alone. The object
// keeps its memory between calls. Owned by one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace cairn::embedding {

class UniqueKeys {
 public:
  // Computes keys() and positions() of a batch of less than 2^31 keys.
  void Compute(absl::Span<const int64_t> batch);

  // The distinct keys of the last batch; valid until the next Compute().
  absl::Span<const int64_t> keys() const { return keys_; }
  // [index in the batch] The index in keys() of each key.
  absl::Span<const int32_t> positions() const { return positions_; }
  // The memory that the object keeps.
  int64_t bytes() const {
    return static_cast<int64_t>(entries_.capacity() * sizeof(uint64_t) + keys_.capacity() * sizeof(int64_t) +
                                positions_.capacity() * sizeof(int32_t));
  }

 private:
  // Doubles the table.
  void Grow();

  // Open addressing with linear probing, at most half full. An entry has the upper half of a key's hash and, below it,
  // 1 + the index in keys(); 0 is an empty one.
  std::vector<uint64_t> entries_;
  std::vector<int64_t> keys_;
  std::vector<int32_t> positions_;
};

}  // namespace cairn::embedding
