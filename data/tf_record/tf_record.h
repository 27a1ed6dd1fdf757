// TFRecord's framing: each record is its length, a checksum of the length, the data, and a checksum of the
// data (tensorflow/core/lib/io/record_writer.h; all little-endian, CRC-32C, masked).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::data {

// One thread.
class TfRecordReader {
 public:
  // `file` must outlive the reader and the records it returns.
  explicit TfRecordReader(absl::Span<const uint8_t> file) : file_(file) {}

  // The next record's data; nullopt at the end. INVALID_ARGUMENT if the data does not match its checksum; the
  // next call continues with the following record. DATA_LOSS if the length does not match its checksum, or if
  // the file ends within the record.
  absl::StatusOr<std::optional<absl::Span<const uint8_t>>> Next();

  // The number of the last record that Next() read, from 0.
  int64_t record() const { return record_; }

 private:
  const absl::Span<const uint8_t> file_;
  size_t at_ = 0;
  int64_t record_ = -1;
};

// Appends one record to `file`, the bytes of a TFRecord file.
void AppendTfRecord(absl::string_view record, std::string& file);

// TFRecord's masked form of a checksum. Without masking, a checksum of data that contains checksums would be
// weak.
inline uint32_t MaskedCrc(uint32_t crc) {
  return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

}  // namespace cairn::data
