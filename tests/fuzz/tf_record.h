// TFRecord's framing with correct checksums, for targets that would rarely guess them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "data/tf_record/crc32c.h"
#include "data/tf_record/tf_record.h"
#include "tests/fuzz/fuzz.h"

namespace cairn::fuzz {

inline void AppendLittleEndian(uint64_t value, int bytes, std::string& to) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<char>(value >> (8 * i)));
}

inline std::string RecordOf(absl::string_view contents) {
  const auto crc = [](absl::string_view text) {
    return data::MaskedCrc(data::Crc32c({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  };
  std::string record;
  AppendLittleEndian(contents.size(), 8, record);
  AppendLittleEndian(crc(record), 4, record);
  record.append(contents.data(), contents.size());
  AppendLittleEndian(crc(contents), 4, record);
  return record;
}

}  // namespace cairn::fuzz
