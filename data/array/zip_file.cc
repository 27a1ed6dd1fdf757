#include "data/array/zip_file.h"

#include <zip.h>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "data/file/mapped_file.h"

namespace cairn::data {
namespace {

class ZipMemberReader final : public ByteReader {
 public:
  // `bytes`: the member's size in the archive's directory.
  ZipMemberReader(zip_file_t* file, int64_t bytes) : file_(file), bytes_(bytes) {}
  ~ZipMemberReader() override { zip_fclose(file_); }
  ZipMemberReader(const ZipMemberReader&) = delete;
  ZipMemberReader& operator=(const ZipMemberReader&) = delete;

  absl::StatusOr<size_t> Read(absl::Span<uint8_t> to) override {
    size_t done = 0;
    while (done < to.size()) {
      CAIRN_ASSIGN_OR_RETURN(const size_t got, ReadSome(to.subspan(done)));
      if (got == 0) break;
      done += got;
    }
    read_ += static_cast<int64_t>(done);
    if (read_ == bytes_) CAIRN_RETURN_IF_ERROR(CheckEnd());
    return done;
  }

  int64_t max_bytes() const override { return bytes_; }

 private:
  absl::StatusOr<size_t> ReadSome(absl::Span<uint8_t> to) {
    const zip_int64_t got = zip_fread(file_, to.data(), to.size());
    if (got >= 0) return static_cast<size_t>(got);
    zip_error_t* const error = zip_file_get_error(file_);
    if (zip_error_code_zip(error) == ZIP_ER_CRC)
      return absl::InvalidArgumentError("is damaged: its bytes do not match their CRC-32 checksum");
    return absl::InvalidArgumentError(absl::StrCat("cannot be unpacked: ", zip_error_strerror(error)));
  }

  // libzip compares the checksum only when bytes after the last one are requested.
  absl::Status CheckEnd() {
    uint8_t beyond;
    CAIRN_ASSIGN_OR_RETURN(const size_t more, ReadSome({&beyond, 1}));
    if (more == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("is damaged: it unpacks to more than ", bytes_, " bytes"));
  }

  zip_file_t* file_;
  const int64_t bytes_;
  int64_t read_ = 0;
};

}  // namespace

void ZipFile::Discard::operator()(zip* archive) const {
  zip_discard(archive);
}

absl::StatusOr<ZipFile> ZipFile::Open(const std::string& path) {
  const absl::Status regular = CheckRegularFile(path);
  if (absl::IsInvalidArgument(regular)) return Annotate(regular, path);
  int code = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code);
  if (archive != nullptr) return ZipFile(archive);
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  if (code == ZIP_ER_NOENT) return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  return absl::InvalidArgumentError(absl::StrCat(path, ": is not a readable zip archive: ", reason));
}

std::vector<std::string> ZipFile::Names() const {
  std::vector<std::string> names;
  const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const char* name = zip_get_name(archive_.get(), static_cast<zip_uint64_t>(i), 0);
    if (name != nullptr) names.emplace_back(name);
  }
  return names;
}

bool ZipFile::Has(const std::string& name) const {
  return zip_name_locate(archive_.get(), name.c_str(), 0) >= 0;
}

absl::StatusOr<std::unique_ptr<ByteReader>> ZipFile::OpenMember(const std::string& name) const {
  zip_t* const archive = archive_.get();
  const zip_int64_t found = zip_name_locate(archive, name.c_str(), 0);
  if (found < 0) return absl::NotFoundError("is not in the archive");
  const auto index = static_cast<zip_uint64_t>(found);
  zip_stat_t info;
  if (zip_stat_index(archive, index, 0, &info) != 0) {
    return absl::InvalidArgumentError(zip_error_strerror(zip_get_error(archive)));
  }
  constexpr zip_uint64_t kNeeded = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
  if ((info.valid & kNeeded) != kNeeded) return absl::InvalidArgumentError("its size is not in the archive");
  if (info.comp_method != ZIP_CM_STORE && info.comp_method != ZIP_CM_DEFLATE) {
    return absl::InvalidArgumentError(absl::StrCat("is compressed by method ", info.comp_method,
                                                   "; only stored and deflated are supported"));
  }
  // The sizes in the directory are only claims. Check that they are possible before allocating memory for
  // them.
  const zip_uint64_t ratio = info.comp_method == ZIP_CM_STORE ? 1 : kMaxDeflateRatio;
  if (info.size > static_cast<zip_uint64_t>(kMaxArrayBytes) || info.size / ratio > info.comp_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("is damaged: it claims to unpack from ", info.comp_size, " to ", info.size, " bytes"));
  }
  zip_file_t* file = zip_fopen_index(archive, index, 0);
  if (file == nullptr) return absl::InvalidArgumentError(zip_error_strerror(zip_get_error(archive)));
  return std::make_unique<ZipMemberReader>(file, static_cast<int64_t>(info.size));
}

}  // namespace cairn::data
