#include "common/net/security/seal.h"

#include "gtest/gtest.h"

namespace cairn::net {
namespace {

constexpr char kKey[] = "the key of the servers";

// Computed by Python's hmac module: hmac.new(b"Jefe", b"15:what do ya want13: for nothing?", "sha256").
TEST(Seal, IsHmacSha256OfTheFactsWithTheirLengths) {
  EXPECT_EQ(HexOf(SealOf("Jefe", {"what do ya want", " for nothing?"})),
            "9b828e9044e7cff3d7bc5a3ad0d57ba96dfe6152ef0a888783ff2e7983a3dbe2");
}

TEST(Seal, IsValidOnlyForItsFactsAndItsKey) {
  const std::string seal = SealOf(kKey, {"incarnation", "1", "7"});
  EXPECT_TRUE(SealHolds(kKey, {"incarnation", "1", "7"}, seal));
  EXPECT_FALSE(SealHolds(kKey, {"incarnation", "1", "8"}, seal));
  EXPECT_FALSE(SealHolds(kKey, {"incarnation", "17", ""}, seal))
      << "the same concatenation, divided differently";
  EXPECT_FALSE(SealHolds("another key of servers", {"incarnation", "1", "7"}, seal));
  EXPECT_FALSE(SealHolds(kKey, {"incarnation", "1", "7"}, ""));
  EXPECT_FALSE(SealHolds(kKey, {"incarnation", "1", "7"}, seal.substr(0, 31)));
}

TEST(Seal, NoSealIsValidUnderAShortKey) {
  EXPECT_FALSE(SealHolds("", {"a"}, SealOf("", {"a"})));
  EXPECT_FALSE(SealHolds("short", {"a"}, SealOf("short", {"a"})));
}

TEST(Secret, TwoDrawsDiffer) {
  EXPECT_EQ(DrawSecret(16).size(), 16u);
  EXPECT_NE(DrawSecret(16), DrawSecret(16));
}

TEST(Secret, OnlyEqualSecretsMatch) {
  EXPECT_TRUE(SameSecret("abc", "abc"));
  EXPECT_FALSE(SameSecret("abc", "abd"));
  EXPECT_FALSE(SameSecret("abc", "ab"));
  EXPECT_FALSE(SameSecret("", "ab"));
}

}  // namespace
}  // namespace cairn::net
