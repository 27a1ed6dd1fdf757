#include "common/net/security/seal.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <new>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::net {
namespace {

constexpr size_t kDigestBytes = 32;

std::string Hmac(absl::string_view key, absl::string_view text) {
  std::string digest(kDigestBytes, '\0');
  unsigned size = 0;
  const auto* result = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                            reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                            reinterpret_cast<unsigned char*>(digest.data()), &size);
  if (result == nullptr) throw std::bad_alloc();  // SHA-256 has no other reason to fail
  CAIRN_CHECK(size == kDigestBytes);
  return digest;
}

}  // namespace

std::string DrawSecret(size_t bytes) {
  std::string secret(bytes, '\0');
  CAIRN_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()), static_cast<int>(bytes)) == 1);
  return secret;
}

std::string HexOf(absl::string_view bytes) {
  return absl::BytesToHexString(bytes);
}

bool SameSecret(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string SealOf(absl::string_view key, absl::Span<const std::string> facts) {
  std::string text;
  for (const std::string& fact : facts) absl::StrAppend(&text, fact.size(), ":", fact);
  return Hmac(key, text);
}

bool SealHolds(absl::string_view key, absl::Span<const std::string> facts, absl::string_view seal) {
  return key.size() >= kMinSealKeyBytes && SameSecret(SealOf(key, facts), seal);
}

}  // namespace cairn::net
