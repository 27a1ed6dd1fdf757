// TFRecord files of tf.Example written by hand, byte by byte.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/data/data_files.h"

namespace cairn::data {

// Bit by bit, as in the definition.
inline uint32_t BitwiseCrc32c(const std::string& bytes) {
  uint32_t sum = ~0u;
  for (const char byte : bytes) {
    sum ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0x82F63B78u : 0u);
  }
  return ~sum;
}

inline std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

inline std::string MaskedCrcOf(const std::string& bytes) {
  return LittleEndian(std::rotr(BitwiseCrc32c(bytes), 15) + 0xA282EAD8u, 4);
}

inline std::string TfRecord(const std::string& data) {
  const std::string length = LittleEndian(data.size(), 8);
  return length + MaskedCrcOf(length) + data + MaskedCrcOf(data);
}

inline std::string Varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text.push_back(static_cast<char>(value | 0x80));
  text.push_back(static_cast<char>(value));
  return text;
}

// A protobuf field that is a message, a string or a packed list.
inline std::string Nested(int field, const std::string& contents) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(contents.size()) + contents;
}

inline std::string BytesFeature(const std::string& bytes) {
  return Nested(1, Nested(1, bytes));
}

inline std::string FloatsFeature(const std::vector<float>& values) {
  std::string packed;
  for (const float value : values) packed += LittleEndian(std::bit_cast<uint32_t>(value), 4);
  return Nested(2, Nested(1, packed));
}

inline std::string IntegersFeature(const std::vector<int64_t>& values) {
  std::string packed;
  for (const int64_t value : values) packed += Varint(static_cast<uint64_t>(value));
  return Nested(3, Nested(1, packed));
}

inline std::string TfExample(const std::map<std::string, std::string>& features) {
  std::string entries;
  for (const auto& [name, feature] : features) entries += Nested(1, Nested(1, name) + Nested(2, feature));
  return Nested(1, entries);
}

}  // namespace cairn::data
