#include "embedding/keys/key_hash.h"

#include <bit>
#include <cstring>

namespace cairn::embedding {
namespace {

static_assert(std::endian::native == std::endian::little, "XXH64 reads little-endian words");

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;

// Reads the bytes of a string from front to back.
class ByteReader {
 public:
  explicit ByteReader(absl::string_view bytes) : at_(bytes.data()), left_(bytes.size()) {}

  size_t left() const { return left_; }
  template <typename Word>
  Word Next() {
    Word word;
    std::memcpy(&word, at_, sizeof(word));
    at_ += sizeof(word);
    left_ -= sizeof(word);
    return word;
  }

 private:
  const char* at_;
  size_t left_;
};

uint64_t Round(uint64_t lane, uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

uint64_t MergeRound(uint64_t hash, uint64_t lane) {
  return (hash ^ Round(0, lane)) * kPrime1 + kPrime4;
}

// Step 2 and 3 of the specification: four lanes over stripes of 32 bytes.
uint64_t HashStripes(ByteReader& reader, uint64_t seed) {
  uint64_t lanes[4] = {seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
  while (reader.left() >= 32) {
    for (uint64_t& lane : lanes) lane = Round(lane, reader.Next<uint64_t>());
  }
  uint64_t hash =
      std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
  for (const uint64_t lane : lanes) hash = MergeRound(hash, lane);
  return hash;
}

}  // namespace

uint64_t HashString(absl::string_view value, uint64_t salt) {
  ByteReader reader(value);
  uint64_t hash = value.size() >= 32 ? HashStripes(reader, salt) : salt + kPrime5;
  hash += value.size();
  while (reader.left() >= 8)
    hash = std::rotl(hash ^ Round(0, reader.Next<uint64_t>()), 27) * kPrime1 + kPrime4;
  if (reader.left() >= 4) hash = std::rotl(hash ^ reader.Next<uint32_t>() * kPrime1, 23) * kPrime2 + kPrime3;
  while (reader.left() > 0) hash = std::rotl(hash ^ reader.Next<uint8_t>() * kPrime5, 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace cairn::embedding
