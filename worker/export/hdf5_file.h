// Reads HDF5 files with libhdf5: the datasets, their shapes and their values. Knows nothing about Keras. In a
// build without libhdf5, Open() returns UNIMPLEMENTED.
//
// Nothing in the file is trusted. Links that leave the file or form a cycle, data stored in other files, and
// more objects than a model has are refused. The caller provides the memory. libhdf5 prints nothing to
// stderr.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "data/array.h"

namespace cairn::worker {

// One thread at a time.
class Hdf5File {
 public:
  // `bytes` are the whole file. INVALID_ARGUMENT if they are not readable HDF5; UNIMPLEMENTED without
  // libhdf5. The messages do not name the file.
  static absl::StatusOr<Hdf5File> Open(data::SharedBytes bytes);

  ~Hdf5File();
  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&& other) = delete;

  // The shape of every dataset, by path: "layers/dense/vars/0".
  const std::map<std::string, Shape>& shapes() const { return shapes_; }
  // The attribute `name` of each group that has one, by the group's path.
  const std::map<std::string, std::string>& group_names() const { return group_names_; }

  // A string attribute of the root; nullopt if it does not exist. INVALID_ARGUMENT if it is damaged.
  absl::StatusOr<std::optional<std::string>> RootText(const std::string& attribute) const;
  // A list of strings: an attribute of the group at `path` ("": the root); nullopt if the group or the
  // attribute does not exist. Keras splits long lists into attributes `names0`, `names1`, ...; these are
  // joined. INVALID_ARGUMENT if it is damaged.
  absl::StatusOr<std::optional<std::vector<std::string>>> GroupTexts(const std::string& path,
                                                                     const std::string& attribute) const;

  // Reads the values of the dataset at `path`, row-major, into `to` [its number of elements].
  // INVALID_ARGUMENT if they are not floating point (a single integer, a counter, is allowed) or damaged:
  // checksums in the file are verified. The message does not name the path.
  absl::Status Read(const std::string& path, absl::Span<float> to) const;

 private:
  Hdf5File(data::SharedBytes bytes, int64_t file) : bytes_(std::move(bytes)), file_(file) {}
  absl::Status List();

  data::SharedBytes bytes_;  // the memory that libhdf5 reads from
  int64_t file_;             // hid_t; negative: none
  std::map<std::string, Shape> shapes_;
  std::map<std::string, std::string> group_names_;
};

}  // namespace cairn::worker
