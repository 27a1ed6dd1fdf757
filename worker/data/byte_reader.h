// Bytes from a file, plain or compressed, front to back; and the one place that turns a header's promise
// ("uint8 [60000,28,28] follows") into memory, or into a part of the mapped file where it is not compressed.
//
// Headers are not believed: a reader knows how many bytes its file can hold at most, so a forged size is
// refused before anything is allocated for it. Errors are INVALID_ARGUMENT without the file's name: callers
// add it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/array.h"

namespace cairn::data {

// One thread at a time.
class ByteReader {
 public:
  virtual ~ByteReader() = default;
  // Fills `to` as far as there are bytes and returns their number; fewer than asked for only at the end.
  virtual absl::StatusOr<size_t> Read(absl::Span<uint8_t> to) = 0;
  // No more than this many bytes can come from here, all in all.
  virtual int64_t max_bytes() const = 0;
  // The next `count` bytes, at most max_bytes(); fewer only at the end. Copied, or where they lie.
  virtual absl::StatusOr<SharedBytes> Take(int64_t count);
  // True where Take() copies nothing.
  virtual bool mapped() const { return false; }
};

// Deflate cannot pack more than this many bytes into one (zlib's technical notes: 1032:1).
inline constexpr int64_t kMaxDeflateRatio = 1032;
// What one array may take in memory. One that is mapped may be larger.
inline constexpr int64_t kMaxArrayBytes = int64_t{16} << 30;

// A file: mapped, or unpacked on the way when it is gzip'd (whatever its name). NOT_FOUND or
// PERMISSION_DENIED with the system's reason; only regular files.
absl::StatusOr<std::unique_ptr<ByteReader>> OpenPlainOrGzip(const std::string& path);

// Fills `to` or fails, saying that the file ends within `what` ("its header").
absl::Status ReadExactly(ByteReader& reader, absl::Span<uint8_t> to, absl::string_view what);

// A whole file: mapped, or unpacked up to kMaxArrayBytes. Errors name it.
absl::StatusOr<SharedBytes> ReadFileBytes(const std::string& path);

// Unpacks zlib data (RFC 1950), to at most kMaxArrayBytes. INVALID_ARGUMENT if the data is damaged or cut
// short.
absl::StatusOr<SharedBytes> InflateZlib(absl::Span<const uint8_t> packed);

// Reads the elements of an array and makes sure that nothing follows them. Of a mapped file they stay where
// they are, unless they are in the other byte order.
enum class ByteOrder { kLittle, kBig };
absl::StatusOr<Array> ReadElements(ByteReader& reader, ElementType type, const Shape& shape, ByteOrder order);

}  // namespace cairn::data
