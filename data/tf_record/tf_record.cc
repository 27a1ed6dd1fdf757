#include "data/tf_record/tf_record.h"

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "data/tf_record/crc32c.h"

namespace cairn::data {
namespace {

constexpr size_t kLengthBytes = 8, kCrcBytes = 4;

uint64_t LittleEndian(absl::Span<const uint8_t> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= uint64_t{bytes[i]} << (8 * i);
  return value;
}

// Whether `bytes` match `crc`, the four bytes of their checksum.
bool Fits(absl::Span<const uint8_t> bytes, absl::Span<const uint8_t> crc) {
  return MaskedCrc(Crc32c(bytes)) == LittleEndian(crc);
}

}  // namespace

absl::StatusOr<std::optional<absl::Span<const uint8_t>>> TfRecordReader::Next() {
  absl::Span<const uint8_t> rest = file_.subspan(at_);
  if (rest.empty()) return std::nullopt;
  ++record_;
  constexpr size_t kHeaderBytes = kLengthBytes + kCrcBytes;
  if (rest.size() < kHeaderBytes) return absl::DataLossError("the file ends within the record's length");
  const auto length_bytes = rest.subspan(0, kLengthBytes);
  if (!Fits(length_bytes, rest.subspan(kLengthBytes, kCrcBytes))) {
    return absl::DataLossError(
        "its length does not match its checksum: this is not a TFRecord file, or it is damaged");
  }
  const uint64_t length = LittleEndian(length_bytes);
  rest.remove_prefix(kHeaderBytes);
  if (rest.size() < kCrcBytes || length > rest.size() - kCrcBytes) {
    return absl::DataLossError(absl::StrCat("is cut short: ", length, " bytes and a checksum should follow, ",
                                            rest.size(), " are there"));
  }
  at_ += kHeaderBytes + length + kCrcBytes;
  const auto data = rest.subspan(0, length);
  if (!Fits(data, rest.subspan(length, kCrcBytes))) {
    return absl::InvalidArgumentError(absl::StrCat("its ", length, " bytes do not match their checksum"));
  }
  return data;
}

namespace {

void AppendLittleEndian(uint64_t value, size_t bytes, std::string& out) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
}

uint32_t MaskedCrcOf(absl::string_view bytes) {
  return MaskedCrc(Crc32c({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
}

}  // namespace

void AppendTfRecord(absl::string_view record, std::string& file) {
  const size_t start = file.size();
  AppendLittleEndian(record.size(), kLengthBytes, file);
  AppendLittleEndian(MaskedCrcOf(absl::string_view(file).substr(start)), kCrcBytes, file);
  file.append(record.data(), record.size());
  AppendLittleEndian(MaskedCrcOf(record), kCrcBytes, file);
}

}  // namespace cairn::data
