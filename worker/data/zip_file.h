// A zip archive's members, stored or deflated. Refused by name: encrypted members, other packings, and
// members that claim to unpack to more than they can.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/byte_reader.h"

struct zip;

namespace cairn::data {

// One thread at a time.
class ZipFile {
 public:
  // INVALID_ARGUMENT when `path` is no zip archive, NOT_FOUND or the system's reason when it cannot be read;
  // both name it.
  static absl::StatusOr<ZipFile> Open(const std::string& path);

  std::vector<std::string> Names() const;
  bool Has(const std::string& name) const;
  // What unpacks one member, of at most kMaxArrayBytes; the archive must outlive it. NOT_FOUND or
  // INVALID_ARGUMENT, without the archive's name and the member's.
  absl::StatusOr<std::unique_ptr<ByteReader>> OpenMember(const std::string& name) const;

 private:
  struct Discard {
    void operator()(zip* archive) const;
  };
  explicit ZipFile(zip* archive) : archive_(archive) {}

  std::unique_ptr<zip, Discard> archive_;
};

}  // namespace cairn::data
