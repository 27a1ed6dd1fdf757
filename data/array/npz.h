// NumPy's .npz: a zip archive of .npy files.
//
// Supported: stored and deflated members, including those of numpy.savez (zip64) and of archives written as a
// stream. Encrypted members, other compression methods, and members that claim an impossible uncompressed
// size are refused with a specific message.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/array.h"
#include "data/array/zip_file.h"

namespace cairn::data {

// One thread at a time.
class NpzFile {
 public:
  // INVALID_ARGUMENT if `path` is not a zip archive; NOT_FOUND or the system's reason if it cannot be read.
  static absl::StatusOr<NpzFile> Open(const std::string& path);

  // The arrays' names, without ".npy".
  std::vector<std::string> Names() const;
  bool Has(absl::string_view name) const;
  // NOT_FOUND listing the existing names. Errors name the file and the array.
  absl::StatusOr<Array> Read(absl::string_view name) const;

 private:
  NpzFile(std::string path, ZipFile archive) : path_(std::move(path)), archive_(std::move(archive)) {}

  std::string path_;
  ZipFile archive_;
};

}  // namespace cairn::data
