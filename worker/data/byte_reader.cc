#include "worker/data/byte_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::data {
namespace {

class GzipReader final : public ByteReader {
 public:
  GzipReader(gzFile file, int64_t file_bytes)
      : file_(file), max_bytes_(gzdirect(file) ? file_bytes : file_bytes * kMaxDeflateRatio) {}
  ~GzipReader() override { gzclose(file_); }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  absl::StatusOr<size_t> Read(absl::Span<uint8_t> to) override {
    constexpr size_t kMostAtOnce = size_t{1} << 30;  // gzread counts in int
    size_t done = 0;
    while (done < to.size()) {
      const size_t wanted = std::min(to.size() - done, kMostAtOnce);
      const int got = gzread(file_, to.data() + done, static_cast<unsigned>(wanted));
      int code = Z_OK;
      absl::string_view reason = gzerror(file_, &code);  // "<fd:3>: incorrect data check"
      if (const size_t colon = reason.find(": "); colon != absl::string_view::npos)
        reason.remove_prefix(colon + 2);
      if (code == Z_BUF_ERROR) return absl::InvalidArgumentError("the compressed file is cut short");
      if (got < 0 || code < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("cannot be unpacked: ", code == Z_ERRNO ? std::strerror(errno) : reason));
      }
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

  int64_t max_bytes() const override { return max_bytes_; }

 private:
  gzFile file_;
  const int64_t max_bytes_;
};

void ReverseEachElement(std::vector<uint8_t>& bytes, int64_t element_bytes) {
  if (element_bytes == 1) return;
  for (auto first = bytes.begin(); first != bytes.end(); first += element_bytes) {
    std::reverse(first, first + element_bytes);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ByteReader>> OpenPlainOrGzip(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot be opened");
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError("is not a regular file");
  }
  gzFile file = gzdopen(fd, "rb");  // takes the descriptor
  if (file == nullptr) {
    close(fd);
    return absl::ResourceExhaustedError("no memory to unpack it");
  }
  return std::make_unique<GzipReader>(file, info.st_size);
}

absl::Status ReadExactly(ByteReader& reader, absl::Span<uint8_t> to, absl::string_view what) {
  CAIRN_ASSIGN_OR_RETURN(const size_t got, reader.Read(to));
  if (got < to.size()) return absl::InvalidArgumentError(absl::StrCat("ends within ", what));
  return absl::OkStatus();
}

absl::StatusOr<Array> ReadElements(ByteReader& reader, ElementType type, const Shape& shape,
                                   ByteOrder order) {
  CAIRN_ASSIGN_OR_RETURN(const Shape checked, Shape::FromUntrusted(shape.dims()));
  const int64_t wanted = checked.num_elements() * SizeOf(type);
  const auto promise = [&] {
    return absl::StrCat("its header promises ", NameOf(type), " ", shape.ToString(), " = ", wanted, " bytes");
  };
  if (wanted > kMaxArrayBytes) {
    return absl::InvalidArgumentError(absl::StrCat(promise(), ", more than the limit of ", kMaxArrayBytes));
  }
  if (wanted > reader.max_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("is cut short: ", promise(), ", which a file of this size cannot hold"));
  }
  Array array{type, checked, std::vector<uint8_t>(static_cast<size_t>(wanted))};
  CAIRN_ASSIGN_OR_RETURN(const size_t got, reader.Read(absl::MakeSpan(array.bytes)));
  if (got < array.bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("is cut short: ", promise(), ", ", got, " are there"));
  }
  uint8_t beyond;
  CAIRN_ASSIGN_OR_RETURN(const size_t more, reader.Read({&beyond, 1}));
  if (more != 0) return absl::InvalidArgumentError(absl::StrCat(promise(), ", but more bytes follow"));
  const bool host_is_little = std::endian::native == std::endian::little;
  if ((order == ByteOrder::kLittle) != host_is_little) ReverseEachElement(array.bytes, SizeOf(type));
  return array;
}

}  // namespace cairn::data
