// Consecutive buckets of a table (keys/key_hash.h).
#pragma once

#include <cstdint>

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

// Buckets are divided among `parts` owners, in order and as evenly as possible: what owner `part` has, and who has
// `bucket`. The numbers of buckets differ by at most one.
inline BucketRange PartOf(BucketRange all, int part, int parts) {
  const auto bound = [&](int64_t i) { return static_cast<int>(all.begin + i * all.size() / parts); };
  return {bound(part), bound(part + 1)};
}
inline int OwnerOf(BucketRange all, int bucket, int parts) {
  return static_cast<int>(((int64_t{bucket} - all.begin + 1) * parts - 1) / all.size());
}

}  // namespace cairn::embedding
