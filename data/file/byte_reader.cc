#include "data/file/byte_reader.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "data/file/mapped_file.h"

namespace cairn::data {
namespace {

// Resizes `bytes`. Throws OutOfMemory with the size if there is not enough memory.
void Resize(std::vector<uint8_t>& bytes, size_t size) {
  try {
    bytes.resize(size);
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(static_cast<int64_t>(size / sizeof(float)));
  }
}

// Decompresses a mapped gzip file of one or several members. zlib checks each member's CRC-32 and length.
class GzipReader final : public ByteReader {
 public:
  static absl::StatusOr<std::unique_ptr<ByteReader>> Open(std::shared_ptr<const MappedFile> file) {
    auto reader = std::unique_ptr<GzipReader>(new GzipReader(std::move(file)));
    constexpr int kGzipWindow = MAX_WBITS + 16;
    if (inflateInit2(&reader->stream_, kGzipWindow) != Z_OK)
      return absl::ResourceExhaustedError("no memory to unpack it");
    return reader;
  }
  ~GzipReader() override { inflateEnd(&stream_); }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  absl::StatusOr<size_t> Read(absl::Span<uint8_t> to) override {
    size_t done = 0;
    while (done < to.size() && !ended_) {
      CAIRN_ASSIGN_OR_RETURN(const size_t got, Inflate(to.subspan(done)));
      done += got;
    }
    return done;
  }

  int64_t max_bytes() const override {
    return static_cast<int64_t>(file_->bytes().size()) * kMaxDeflateRatio;
  }

 private:
  explicit GzipReader(std::shared_ptr<const MappedFile> file)
      : file_(std::move(file)), left_(file_->bytes()) {}

  absl::StatusOr<size_t> Inflate(absl::Span<uint8_t> to) {
    constexpr size_t kMaxAtOnce = size_t{1} << 30;  // zlib counts in unsigned int
    const auto given = static_cast<unsigned>(std::min(left_.size(), kMaxAtOnce));
    const auto wanted = static_cast<unsigned>(std::min(to.size(), kMaxAtOnce));
    stream_.next_in = const_cast<Bytef*>(left_.data());
    stream_.avail_in = given;
    stream_.next_out = to.data();
    stream_.avail_out = wanted;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    left_.remove_prefix(given - stream_.avail_in);
    if (code == Z_STREAM_END) CAIRN_RETURN_IF_ERROR(BeginNextMember());
    if (code == Z_BUF_ERROR) return absl::InvalidArgumentError("the compressed file is cut short");
    if (code != Z_OK && code != Z_STREAM_END) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot be unpacked: ", stream_.msg != nullptr ? stream_.msg : zError(code)));
    }
    return wanted - stream_.avail_out;
  }

  // The last member may be followed by zeros, which pad the blocks of a tape.
  absl::Status BeginNextMember() {
    ended_ = std::all_of(left_.begin(), left_.end(), [](uint8_t byte) { return byte == 0; });
    if (ended_) return absl::OkStatus();
    if (left_.size() < 2 || left_[0] != 0x1f || left_[1] != 0x8b) {
      return absl::InvalidArgumentError(
          absl::StrCat("is damaged: ", left_.size(), " bytes that are not gzip follow the compressed data"));
    }
    inflateReset(&stream_);
    return absl::OkStatus();
  }

  const std::shared_ptr<const MappedFile> file_;
  absl::Span<const uint8_t> left_;
  z_stream stream_ = {};
  bool ended_ = false;
};

// Reads one zlib stream in memory, which must outlive the reader.
class ZlibReader final : public ByteReader {
 public:
  explicit ZlibReader(absl::Span<const uint8_t> packed) : rest_(packed) { state_ = inflateInit(&stream_); }
  ~ZlibReader() override { inflateEnd(&stream_); }
  ZlibReader(const ZlibReader&) = delete;
  ZlibReader& operator=(const ZlibReader&) = delete;

  absl::StatusOr<size_t> Read(absl::Span<uint8_t> to) override {
    constexpr size_t kMaxAtOnce = size_t{1} << 30;  // zlib counts in unsigned int
    size_t done = 0;
    while (done < to.size() && state_ == Z_OK) {
      const size_t offered = std::min(rest_.size(), kMaxAtOnce),
                   wanted = std::min(to.size() - done, kMaxAtOnce);
      stream_.next_in = const_cast<uint8_t*>(rest_.data());
      stream_.avail_in = static_cast<unsigned>(offered);
      stream_.next_out = to.data() + done;
      stream_.avail_out = static_cast<unsigned>(wanted);
      state_ = inflate(&stream_, Z_NO_FLUSH);
      rest_.remove_prefix(offered - stream_.avail_in);
      done += wanted - stream_.avail_out;
    }
    if (state_ == Z_BUF_ERROR) return absl::InvalidArgumentError("the compressed data is cut short");
    if (state_ != Z_OK && state_ != Z_STREAM_END) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot be unpacked: ", stream_.msg == nullptr ? zError(state_) : stream_.msg));
    }
    if (state_ == Z_STREAM_END && !rest_.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(rest_.size(), " bytes follow the compressed data"));
    }
    return done;
  }

  int64_t max_bytes() const override { return kMaxArrayBytes; }

 private:
  absl::Span<const uint8_t> rest_;
  z_stream stream_{};
  int state_;
};

class MappedReader final : public ByteReader {
 public:
  explicit MappedReader(std::shared_ptr<const MappedFile> file)
      : file_(std::move(file)), left_(file_->bytes()) {}

  absl::StatusOr<size_t> Read(absl::Span<uint8_t> to) override {
    const auto part = TakeSpan(to.size());
    std::copy(part.begin(), part.end(), to.begin());
    return part.size();
  }
  absl::StatusOr<SharedBytes> Take(int64_t count) override {
    return SharedBytes(TakeSpan(static_cast<size_t>(count)), file_);
  }
  int64_t max_bytes() const override { return static_cast<int64_t>(file_->bytes().size()); }
  bool mapped() const override { return true; }

 private:
  absl::Span<const uint8_t> TakeSpan(size_t count) {
    const auto part = left_.subspan(0, count);
    left_.remove_prefix(part.size());
    return part;
  }

  const std::shared_ptr<const MappedFile> file_;
  absl::Span<const uint8_t> left_;
};

SharedBytes WithElementsReversed(const SharedBytes& bytes, int64_t element_bytes) {
  std::vector<uint8_t> reversed(bytes.begin(), bytes.end());
  for (auto first = reversed.begin(); first != reversed.end(); first += element_bytes) {
    std::reverse(first, first + element_bytes);
  }
  return SharedBytes(std::move(reversed));
}

// Reads everything into memory.
absl::StatusOr<SharedBytes> Unpack(ByteReader& reader) {
  std::vector<uint8_t> bytes;
  size_t filled = 0;
  do {
    Resize(bytes, std::max<size_t>(2 * filled, 1 << 16));
    CAIRN_ASSIGN_OR_RETURN(const size_t got, reader.Read(absl::MakeSpan(bytes).subspan(filled)));
    filled += got;
    if (static_cast<int64_t>(filled) > kMaxArrayBytes) {
      return absl::InvalidArgumentError(absl::StrCat("unpacks to more than the limit of ", kMaxArrayBytes));
    }
  } while (filled == bytes.size());
  bytes.resize(filled);
  bytes.shrink_to_fit();
  return SharedBytes(std::move(bytes));
}

}  // namespace

absl::StatusOr<SharedBytes> ByteReader::Take(int64_t count) {
  std::vector<uint8_t> bytes;
  Resize(bytes, static_cast<size_t>(count));
  CAIRN_ASSIGN_OR_RETURN(const size_t got, Read(absl::MakeSpan(bytes)));
  bytes.resize(got);
  return SharedBytes(std::move(bytes));
}

absl::StatusOr<std::unique_ptr<ByteReader>> OpenPlainOrGzip(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> mapped, MappedFile::Open(path));
  if (!absl::StartsWith(mapped->text(), "\x1f\x8b")) return std::make_unique<MappedReader>(std::move(mapped));
  return GzipReader::Open(std::move(mapped));
}

absl::Status ReadExactly(ByteReader& reader, absl::Span<uint8_t> to, absl::string_view what) {
  CAIRN_ASSIGN_OR_RETURN(const size_t got, reader.Read(to));
  if (got < to.size()) return absl::InvalidArgumentError(absl::StrCat("ends within ", what));
  return absl::OkStatus();
}

absl::StatusOr<SharedBytes> ReadFileBytes(const std::string& path) {
  auto reader = OpenPlainOrGzip(path);
  if (!reader.ok()) return Annotate(reader.status(), path);
  auto bytes = (*reader)->mapped() ? (*reader)->Take((*reader)->max_bytes()) : Unpack(**reader);
  if (!bytes.ok()) return Annotate(bytes.status(), path);
  return bytes;
}

absl::StatusOr<SharedBytes> InflateZlib(absl::Span<const uint8_t> packed) {
  ZlibReader reader(packed);
  return Unpack(reader);
}

absl::StatusOr<Array> ReadElements(ByteReader& reader, ElementType type, const Shape& shape,
                                   ByteOrder order) {
  CAIRN_ASSIGN_OR_RETURN(const Shape checked, Shape::FromUntrusted(shape.dims()));
  const int64_t wanted = checked.num_elements() * SizeOf(type);
  const bool host_is_little = std::endian::native == std::endian::little;
  const bool reverse = (order == ByteOrder::kLittle) != host_is_little && SizeOf(type) > 1;
  const auto promise = [&] {
    return absl::StrCat("its header declares ", NameOf(type), " ", shape.ToString(), " = ", wanted, " bytes");
  };
  if (wanted > kMaxArrayBytes && (reverse || !reader.mapped())) {
    return absl::InvalidArgumentError(absl::StrCat(promise(), ", more than the limit of ", kMaxArrayBytes));
  }
  if (wanted > reader.max_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("is cut short: ", promise(), ", which a file of this size cannot hold"));
  }
  Array array{type, checked, {}};
  CAIRN_ASSIGN_OR_RETURN(array.bytes, reader.Take(wanted));
  if (static_cast<int64_t>(array.bytes.size()) < wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("is cut short: ", promise(), ", ", array.bytes.size(), " are there"));
  }
  uint8_t beyond;
  CAIRN_ASSIGN_OR_RETURN(const size_t more, reader.Read({&beyond, 1}));
  if (more != 0) return absl::InvalidArgumentError(absl::StrCat(promise(), ", but more bytes follow"));
  if (reverse) array.bytes = WithElementsReversed(array.bytes, SizeOf(type));
  return array;
}

}  // namespace cairn::data
