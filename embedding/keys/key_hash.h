// The hashes of the keys of embedding tables. They decide which server has a row and what its first values are, and
// checkpoints and the wire depend on them: they never change. Any thread may call these functions.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace cairn::embedding {

// The last steps of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
// 2014; constants: Stafford's "variant 13"). A bijection.
inline uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// The distance between two states of SplitMix64: 2^64 divided by the golden ratio, made odd.
inline constexpr uint64_t kSplitMixGamma = 0x9E3779B97F4A7C15;

// The first number of SplitMix64 with the seed `key`. A bijection: different keys have different hashes. Keys that
// are close to each other, or multiples of one number, have hashes that are far apart.
inline uint64_t HashKey(int64_t key) {
  return Mix64(static_cast<uint64_t>(key) + kSplitMixGamma);
}

// The key that has this hash: the inverse of HashKey().
inline int64_t KeyOfHash(uint64_t hash) {
  // The factors are the inverses of those of Mix64() modulo 2^64.
  hash = (hash ^ hash >> 31 ^ hash >> 62) * 0x319642B2D24D8EC3;
  hash = (hash ^ hash >> 27 ^ hash >> 54) * 0x96DE1B173F119089;
  return static_cast<int64_t>((hash ^ hash >> 30 ^ hash >> 60) - kSplitMixGamma);
}

// The rows of a table lie in buckets, and servers own whole buckets.
inline constexpr int kBuckets = 1 << 16;

// In [0, kBuckets): the upper 16 bits of HashKey(). The lower 48 bits are free for a hash table of the bucket.
inline int BucketOfHash(uint64_t hash) {
  return static_cast<int>(hash >> 48);
}
inline int BucketOf(int64_t key) {
  return BucketOfHash(HashKey(key));
}

// The key of a string: XXH64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md) of its bytes, with
// `salt` as the seed. Give each feature its own salt, for example HashString(feature_name, 0), where equal strings
// of two features mean different things. Two of n strings have the same key with a probability of about n^2 / 2^65.
uint64_t HashString(absl::string_view value, uint64_t salt);

}  // namespace cairn::embedding
