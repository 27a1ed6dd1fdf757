// What is needed of an HDF5 file, by libhdf5: which datasets it has, of what shape, and their values. Knows
// nothing of Keras. Where the build had no libhdf5, opening fails and says so.
//
// Nothing in the file is trusted: links that lead out of it or in circles, data that lies elsewhere, and more
// objects than a model has are refused; memory is the caller's. libhdf5 says nothing on stderr.
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
#include "worker/data/array.h"

namespace cairn::worker {

// One thread at a time.
class Hdf5File {
 public:
  // Of a whole file's bytes. INVALID_ARGUMENT, or UNIMPLEMENTED without libhdf5; without the file's name.
  static absl::StatusOr<Hdf5File> Open(data::SharedBytes bytes);

  ~Hdf5File();
  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&& other) = delete;

  // Of every dataset, by path: "layers/dense/vars/0".
  const std::map<std::string, Shape>& shapes() const { return shapes_; }
  // The attribute `name` of the groups that have one, by the group's path.
  const std::map<std::string, std::string>& group_names() const { return group_names_; }

  // A string attribute of the root; nullopt where there is none. INVALID_ARGUMENT when it is damaged.
  absl::StatusOr<std::optional<std::string>> RootText(const std::string& attribute) const;
  // An attribute of the group at `path` ("": the root) that is a list of strings; nullopt where the group or
  // the attribute does not exist. Keras splits a long list over attributes `names0`, `names1`, ...: they are
  // joined. INVALID_ARGUMENT when it is damaged.
  absl::StatusOr<std::optional<std::vector<std::string>>> GroupTexts(const std::string& path,
                                                                     const std::string& attribute) const;

  // The values of one of shapes(), row-major, into `to` [its number of elements]. INVALID_ARGUMENT when they
  // are not of floating point (or one integer, a counter), or damaged: the checksums that the file has are
  // compared. Without the path.
  absl::Status Read(const std::string& path, absl::Span<float> to) const;

 private:
  Hdf5File(data::SharedBytes bytes, int64_t file) : bytes_(std::move(bytes)), file_(file) {}
  absl::Status List();

  data::SharedBytes bytes_;  // where libhdf5 reads
  int64_t file_;             // hid_t; negative: none
  std::map<std::string, Shape> shapes_;
  std::map<std::string, std::string> group_names_;
};

}  // namespace cairn::worker
