// Consecutive buckets of a table (keys/key_hash.h).
#pragma once

#include "embedding/keys/key_hash.h"

namespace cairn::embedding {

// The buckets from `begin` to `end` - 1: 0 <= begin <= end <= kBuckets.
struct BucketRange {
  int begin = 0;
  int end = kBuckets;

  int size() const { return end - begin; }
  bool Contains(int bucket) const { return begin <= bucket && bucket < end; }
  friend bool operator==(const BucketRange&, const BucketRange&) = default;
};

}  // namespace cairn::embedding
