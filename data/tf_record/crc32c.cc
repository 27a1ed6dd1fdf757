#include "data/tf_record/crc32c.h"

#include <array>

namespace cairn::data {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // with reversed bits

// Tables for eight bytes at a time ("slicing by 8", Kounavis and Berry 2005). kTables[k][b] is the checksum
// of byte b followed by k zero bytes.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = sum;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t shorter = tables[k - 1][byte];
      tables[k][byte] = (shorter >> 8) ^ tables[0][shorter & 255];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

uint32_t LittleEndian32(const uint8_t* bytes) {
  return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 | uint32_t{bytes[3]} << 24;
}

}  // namespace

uint32_t Crc32c(absl::Span<const uint8_t> bytes) {
  uint32_t sum = ~0u;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    const uint32_t low = LittleEndian32(bytes.data()) ^ sum, high = LittleEndian32(bytes.data() + 4);
    sum = kTables[7][low & 255] ^ kTables[6][low >> 8 & 255] ^ kTables[5][low >> 16 & 255] ^
          kTables[4][low >> 24] ^ kTables[3][high & 255] ^ kTables[2][high >> 8 & 255] ^
          kTables[1][high >> 16 & 255] ^ kTables[0][high >> 24];
  }
  for (const uint8_t byte : bytes) sum = (sum >> 8) ^ kTables[0][(sum ^ byte) & 255];
  return ~sum;
}

}  // namespace cairn::data
