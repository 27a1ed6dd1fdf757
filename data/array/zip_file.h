// The members of a zip archive, stored or deflated. Encrypted members, other compression methods, and members
// that claim an impossible uncompressed size are refused with a specific message.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "data/file/byte_reader.h"

struct zip;

namespace cairn::data {

// One thread at a time.
class ZipFile {
 public:
  // INVALID_ARGUMENT if `path` is not a zip archive; NOT_FOUND or the system's reason if it cannot be read.
  // Errors name the archive.
  static absl::StatusOr<ZipFile> Open(const std::string& path);

  std::vector<std::string> Names() const;
  bool Has(const std::string& name) const;
  // A reader of one member, of at most kMaxArrayBytes. The archive must outlive it. NOT_FOUND or
  // INVALID_ARGUMENT, without the names of the archive and the member.
  absl::StatusOr<std::unique_ptr<ByteReader>> OpenMember(const std::string& name) const;

 private:
  struct Discard {
    void operator()(zip* archive) const;
  };
  explicit ZipFile(zip* archive) : archive_(archive) {}

  std::unique_ptr<zip, Discard> archive_;
};

}  // namespace cairn::data
