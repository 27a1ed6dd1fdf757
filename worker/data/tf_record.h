// TFRecord's framing: each record is its length, a checksum of that, its bytes, and a checksum of them
// (tensorflow/core/lib/io/record_writer.h; all little-endian, CRC-32C, masked).
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
  // `file` must outlive the reader and what it hands out.
  explicit TfRecordReader(absl::Span<const uint8_t> file) : file_(file) {}

  // The next record's bytes; nullopt at the end. INVALID_ARGUMENT where its bytes do not fit their checksum:
  // the next call goes on behind it. DATA_LOSS where its length cannot be believed or the file ends within
  // it.
  absl::StatusOr<std::optional<absl::Span<const uint8_t>>> Next();

  // The number of the record that Next() looked at last, from 0.
  int64_t record() const { return record_; }

 private:
  const absl::Span<const uint8_t> file_;
  size_t at_ = 0;
  int64_t record_ = -1;
};

// Appends one record to `file`, the bytes of a TFRecord file.
void AppendTfRecord(absl::string_view record, std::string& file);

// What TFRecord writes for a checksum, so that data which holds checksums has sound ones of its own.
inline uint32_t MaskedCrc(uint32_t crc) {
  return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

}  // namespace cairn::data
