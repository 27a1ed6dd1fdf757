// NumPy's .npz: a zip archive of .npy files, each one array with a header in Python's syntax
// (numpy/lib/format.py).
//
// Read: stored and deflated members; headers of versions 1 to 3; uint8, bool (as uint8), int8 to int64,
// float32 and float64, of either byte order. Refused by name: pickled objects, structures, Fortran order,
// other types, encrypted members, and members that claim to unpack to more than they can.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/array.h"
#include "worker/data/byte_reader.h"

struct zip;

namespace cairn::data {

// One .npy: header and elements, to the end of `reader`.
absl::StatusOr<Array> ReadNpy(ByteReader& reader);

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
  struct Discard {
    void operator()(zip* archive) const;
  };
  NpzFile(std::string path, zip* archive) : path_(std::move(path)), archive_(archive) {}

  std::string path_;
  std::unique_ptr<zip, Discard> archive_;
};

}  // namespace cairn::data
