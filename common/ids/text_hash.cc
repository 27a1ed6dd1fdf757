#include "common/ids/text_hash.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

namespace cairn {
namespace {

static_assert(std::endian::native == std::endian::little, "words of a text are little-endian");

// Constants and steps are those of farmhashna in farmhash.cc.
constexpr uint64_t kFarm0 = 0xC3A5C85C97CB3127, kFarm1 = 0xB492B66FBE98F273, kFarm2 = 0x9AE16A3B2F90404F;

using Pair = std::pair<uint64_t, uint64_t>;

uint64_t Word64(const char* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

uint64_t Word32(const char* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

uint64_t ShiftMix(uint64_t value) {
  return value ^ value >> 47;
}

uint64_t HashOf16(uint64_t u, uint64_t v, uint64_t factor) {
  const uint64_t a = ShiftMix((u ^ v) * factor);
  return ShiftMix((v ^ a) * factor) * factor;
}

// At most 16 bytes.
uint64_t HashShort(absl::string_view text) {
  const size_t size = text.size();
  const char* const s = text.data();
  const uint64_t factor = kFarm2 + size * 2;
  if (size >= 8) {
    const uint64_t a = Word64(s) + kFarm2, b = Word64(s + size - 8);
    const uint64_t c = std::rotr(b, 37) * factor + a, d = (std::rotr(a, 25) + b) * factor;
    return HashOf16(c, d, factor);
  }
  if (size >= 4) return HashOf16(size + (Word32(s) << 3), Word32(s + size - 4), factor);
  if (size == 0) return kFarm2;
  const auto byte = [s](size_t at) { return static_cast<uint32_t>(static_cast<unsigned char>(s[at])); };
  const uint32_t y = byte(0) + (byte(size >> 1) << 8),
                 z = static_cast<uint32_t>(size) + (byte(size - 1) << 2);
  return ShiftMix(y * kFarm2 ^ z * kFarm0) * kFarm2;
}

// From 17 to 32 bytes.
uint64_t HashMedium(absl::string_view text) {
  const size_t size = text.size();
  const char* const s = text.data();
  const uint64_t factor = kFarm2 + size * 2;
  const uint64_t a = Word64(s) * kFarm1, b = Word64(s + 8), c = Word64(s + size - 8) * factor,
                 d = Word64(s + size - 16) * kFarm2;
  return HashOf16(std::rotr(a + b, 43) + std::rotr(c, 30) + d, a + std::rotr(b + kFarm2, 18) + c, factor);
}

// From 33 to 64 bytes.
uint64_t HashLong(absl::string_view text) {
  const size_t size = text.size();
  const char* const s = text.data();
  const uint64_t factor = kFarm2 + size * 2;
  const uint64_t a = Word64(s) * kFarm2, b = Word64(s + 8), c = Word64(s + size - 8) * factor,
                 d = Word64(s + size - 16) * kFarm2;
  const uint64_t y = std::rotr(a + b, 43) + std::rotr(c, 30) + d;
  const uint64_t z = HashOf16(y, a + std::rotr(b + kFarm2, 18) + c, factor);
  const uint64_t e = Word64(s + 16) * factor, f = Word64(s + 24);
  const uint64_t g = (y + Word64(s + size - 32)) * factor, h = (z + Word64(s + size - 24)) * factor;
  return HashOf16(std::rotr(e + f, 43) + std::rotr(g, 30) + h, e + std::rotr(f + a, 18) + g, factor);
}

// Hashes 32 bytes at `s` with two seeds.
Pair WeakHash(const char* s, uint64_t a, uint64_t b) {
  a += Word64(s);
  b = std::rotr(b + a + Word64(s + 24), 21);
  const uint64_t c = a;
  a += Word64(s + 8) + Word64(s + 16);
  b += std::rotr(a, 44);
  return {a + Word64(s + 24), b + c};
}

// More than 64 bytes.
class Chunks {
 public:
  uint64_t Hash(absl::string_view text) {
    const char* s = text.data();
    const size_t rest = (text.size() - 1) & 63;  // of the bytes behind the first chunks, without the last one
    const char* const end = s + (text.size() - 1 - rest);
    x_ = x_ * kFarm2 + Word64(s);
    for (; s != end; s += 64) Take(s, kFarm1, 1);
    const uint64_t factor = kFarm1 + ((z_ & 0xFF) << 1);
    w_.first += rest;
    v_.first += w_.first;
    w_.first += v_.first;
    Take(end + rest - 63, factor, 9);
    return HashOf16(HashOf16(v_.first, w_.first, factor) + ShiftMix(y_) * kFarm0 + z_,
                    HashOf16(v_.second, w_.second, factor) + x_, factor);
  }

 private:
  // Takes the 64 bytes at `s`. `factor` and `weight` differ for the last bytes.
  void Take(const char* s, uint64_t factor, uint64_t weight) {
    x_ = std::rotr(x_ + y_ + v_.first + Word64(s + 8), 37) * factor;
    y_ = std::rotr(y_ + v_.second + Word64(s + 48), 42) * factor;
    x_ ^= w_.second * weight;
    y_ += v_.first * weight + Word64(s + 40);
    z_ = std::rotr(z_ + w_.first, 33) * factor;
    v_ = WeakHash(s, v_.second * factor, x_ + w_.first);
    w_ = WeakHash(s + 32, z_ + w_.second, y_ + Word64(s + 16));
    std::swap(z_, x_);
  }

  static constexpr uint64_t kSeed = 81;
  uint64_t x_ = kSeed, y_ = kSeed * kFarm1 + 113, z_ = ShiftMix(y_ * kFarm2 + 113) * kFarm2;
  Pair v_, w_;
};

}  // namespace

uint64_t Fingerprint64(absl::string_view text) {
  if (text.size() <= 16) return HashShort(text);
  if (text.size() <= 32) return HashMedium(text);
  if (text.size() <= 64) return HashLong(text);
  return Chunks().Hash(text);
}

uint64_t SipHash24(absl::string_view text, const std::array<uint64_t, 2>& key) {
  uint64_t v0 = key[0] ^ 0x736F6D6570736575, v1 = key[1] ^ 0x646F72616E646F6D,
           v2 = key[0] ^ 0x6C7967656E657261, v3 = key[1] ^ 0x7465646279746573;
  const auto rounds = [&](int count) {
    for (; count > 0; --count) {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1;
      v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto take = [&](uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  };
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) take(Word64(text.data() + at));
  uint64_t last = static_cast<uint64_t>(text.size()) << 56;
  if (at < text.size()) std::memcpy(&last, text.data() + at, text.size() - at);
  take(last);
  v2 ^= 0xFF;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace cairn
