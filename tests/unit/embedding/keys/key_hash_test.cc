#include "embedding/keys/key_hash.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace cairn::embedding {
namespace {

// The first numbers of SplitMix64 with these seeds, as in other implementations: java.util.SplittableRandom, and
// the reference in C at https://prng.di.unimi.it/splitmix64.c.
TEST(HashKey, HasThePublishedValuesOfSplitMix64) {
  EXPECT_EQ(HashKey(0), 0xE220A8397B1DCDAFu);
  EXPECT_EQ(HashKey(1), 0x910A2DEC89025CC1u);
  EXPECT_EQ(HashKey(1234567), 6457827717110365317u);
}

TEST(KeyOfHash, IsTheInverseOfHashKey) {
  for (const int64_t key : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min(),
                            std::numeric_limits<int64_t>::max(), int64_t{1234567}}) {
    EXPECT_EQ(KeyOfHash(HashKey(key)), key);
  }
  for (uint64_t hash = 1; hash != 0; hash <<= 1) EXPECT_EQ(HashKey(KeyOfHash(hash)), hash);
}

TEST(HashKey, NeverChangesForTheKeysOfASavedTable) {
  EXPECT_EQ(HashKey(-1), 0xE4D971771B652C20u);
  EXPECT_EQ(HashKey(std::numeric_limits<int64_t>::min()), 0x481EC0A212A9F3DBu);
  EXPECT_EQ(HashKey(std::numeric_limits<int64_t>::max()), 0x2A67D7552E039EA7u);
  EXPECT_EQ(BucketOf(0), 0xE220);
  EXPECT_EQ(BucketOf(1), 0x910A);
  EXPECT_EQ(BucketOf(-1), 0xE4D9);
}

// The steps of the hash backwards: what a bijection has.
int64_t KeyOf(uint64_t hash) {
  const auto unshift = [](uint64_t x, int bits) {
    uint64_t y = x;
    for (int known = bits; known < 64; known += bits) y = x ^ (y >> bits);
    return y;
  };
  hash = unshift(hash, 31) * 0x319642B2D24D8EC3;  // the inverses of the constants modulo 2^64
  hash = unshift(hash, 27) * 0x96DE1B173F119089;
  return static_cast<int64_t>(unshift(hash, 30) - kSplitMixGamma);
}

TEST(HashKey, IsABijection) {
  for (int64_t key = -1000; key <= 1000; ++key) ASSERT_EQ(KeyOf(HashKey(key)), key);
  for (int bit = 0; bit < 64; ++bit) {
    const auto key = static_cast<int64_t>(uint64_t{1} << bit);
    ASSERT_EQ(KeyOf(HashKey(key)), key);
  }
}

// Keys 0, stride, 2 stride, ...: 64 per bucket. A random function has a standard deviation of 8 in a bucket, and
// puts between 20 and 120 into every one of 65536 with a probability above 0.999.
class Balance : public testing::TestWithParam<int64_t> {};

TEST_P(Balance, BucketsAreFilledAsByARandomFunction) {
  constexpr int kPerBucket = 64;
  std::vector<int> counts(kBuckets);
  for (int64_t i = 0; i < int64_t{kPerBucket} * kBuckets; ++i)
    ++counts[static_cast<size_t>(BucketOf(i * GetParam()))];
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  EXPECT_GE(*least, 20);
  EXPECT_LE(*most, 120);
  double square = 0;
  for (const int count : counts) square += (count - kPerBucket) * (count - kPerBucket);
  EXPECT_NEAR(square / kBuckets, kPerBucket, 0.05 * kPerBucket);
}

// Servers own contiguous buckets. 100,000 keys on 3 or 16 servers: within 5 %.
TEST_P(Balance, ServersHaveEqualParts) {
  constexpr int kKeys = 100'000;
  for (const int servers : {3, 16}) {
    std::vector<int> counts(static_cast<size_t>(servers));
    for (int64_t i = 0; i < kKeys; ++i) {
      ++counts[static_cast<size_t>(int64_t{BucketOf(i * GetParam())} * servers / kBuckets)];
    }
    for (const int count : counts) EXPECT_NEAR(count, kKeys / servers, 0.05 * kKeys / servers);
  }
}

INSTANTIATE_TEST_SUITE_P(KeyHash, Balance, testing::Values(1, 2, 3, 16, 1000),
                         [](const auto& tested) { return absl::StrCat("MultiplesOf", tested.param); });

TEST(HashString, HasThePublishedValuesOfXxh64) {
  EXPECT_EQ(HashString("", 0), 0xEF46DB3751D8E999u);
  EXPECT_EQ(HashString("a", 0), 0xD24EC4F1A98C6E5Bu);
  EXPECT_EQ(HashString("abc", 0), 0x44BC2CF5AD770999u);
  EXPECT_EQ(HashString("xxhash", 20141025), 0xB559B98D844E0635u);
}

// From libxxhash 0.8.1: every length of the last bytes, and more than one stripe.
TEST(HashString, EqualsLibxxhashForEveryKindOfLength) {
  EXPECT_EQ(HashString("", 1), 0xD5AFBA1336A3BE4Bu);
  EXPECT_EQ(HashString("abcdefgh", 0), 0x3AD351775B4634B7u);
  EXPECT_EQ(HashString("abcdefghijkl", 7), 0x686777D303D59700u);
  std::string bytes;
  for (int i = 0; i < 101; ++i) bytes.push_back(static_cast<char>(i));
  EXPECT_EQ(HashString(bytes.substr(0, 32), 0), 0xCBF59C5116FF32B4u);
  EXPECT_EQ(HashString(bytes, 2654435761), 0xA1C6D4174C37136Du);
}

TEST(HashString, TheSaltOfAFeatureSeparatesEqualStrings) {
  const uint64_t salt1 = HashString("C1", 0), salt2 = HashString("C2", 0);
  EXPECT_NE(HashString("68fd1e64", salt1), HashString("68fd1e64", salt2));
  EXPECT_EQ(HashString("68fd1e64", 9), 0xE968841975714A84u);
}

}  // namespace
}  // namespace cairn::embedding
