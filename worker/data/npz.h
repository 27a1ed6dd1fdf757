// NumPy's .npz: a zip archive of .npy files.
//
// Stored and deflated members, also as numpy.savez writes them (zip64) and as a stream leaves them. Refused
// by name: encrypted members, other packings, and members that claim to unpack to more than they can.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/array.h"
#include "worker/data/zip_file.h"

namespace cairn::data {

// One thread at a time.
class NpzFile {
 public:
  // INVALID_ARGUMENT when `path` is no zip archive, NOT_FOUND or the system's reason when it cannot be read.
  static absl::StatusOr<NpzFile> Open(const std::string& path);

  // The arrays' names, without ".npy".
  std::vector<std::string> Names() const;
  bool Has(absl::string_view name) const;
  // NOT_FOUND listing the names that are there; errors name the file and the array.
  absl::StatusOr<Array> Read(absl::string_view name) const;

 private:
  NpzFile(std::string path, ZipFile archive) : path_(std::move(path)), archive_(std::move(archive)) {}

  std::string path_;
  ZipFile archive_;
};

}  // namespace cairn::data
