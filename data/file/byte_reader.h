// Reads the bytes of a file, plain or compressed, from front to back. This is the only code that turns the
// size in a header ("uint8 [60000,28,28] follows") into an allocation or, for a file that is not compressed,
// into a range of the mapped file.
//
// Headers are not trusted. A reader knows how many bytes its file can contain at most, so a forged size is
// refused before anything is allocated for it. Errors are INVALID_ARGUMENT without the file's name, which
// callers add.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/array.h"

namespace cairn::data {

// One thread at a time.
class ByteReader {
 public:
  virtual ~ByteReader() = default;
  // Fills `to` with the next bytes and returns their number. It is less than to.size() only at the end.
  virtual absl::StatusOr<size_t> Read(absl::Span<uint8_t> to) = 0;
  // An upper bound on the total number of bytes.
  virtual int64_t max_bytes() const = 0;
  // The next `count` bytes, at most max_bytes(); fewer only at the end. They are copied or, in a mapped file,
  // borrowed.
  virtual absl::StatusOr<SharedBytes> Take(int64_t count);
  // True if Take() copies nothing.
  virtual bool mapped() const { return false; }
};

// Deflate's maximum compression ratio (zlib's technical notes: 1032:1).
inline constexpr int64_t kMaxDeflateRatio = 1032;
// The maximum size of an array in memory. A mapped array may be larger.
inline constexpr int64_t kMaxArrayBytes = int64_t{16} << 30;

// Opens a file: mapped, or decompressed while reading if it is gzipped (under any name). Only regular files.
// NOT_FOUND or PERMISSION_DENIED with the system's reason.
absl::StatusOr<std::unique_ptr<ByteReader>> OpenPlainOrGzip(const std::string& path);

// Fills `to`. If there are too few bytes, the error states that the file ends within `what` ("its header").
absl::Status ReadExactly(ByteReader& reader, absl::Span<uint8_t> to, absl::string_view what);

// Reads a whole file: mapped, or decompressed up to kMaxArrayBytes. Errors name it.
absl::StatusOr<SharedBytes> ReadFileBytes(const std::string& path);

// Decompresses zlib data (RFC 1950), to at most kMaxArrayBytes. INVALID_ARGUMENT if the data is damaged or
// truncated.
absl::StatusOr<SharedBytes> InflateZlib(absl::Span<const uint8_t> packed);

// Reads the elements of an array and checks that nothing follows them. Elements of a mapped file are not
// copied, unless their byte order is not this machine's.
enum class ByteOrder { kLittle, kBig };
absl::StatusOr<Array> ReadElements(ByteReader& reader, ElementType type, const Shape& shape, ByteOrder order);

}  // namespace cairn::data
