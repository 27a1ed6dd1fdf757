// Keras' data sets as stored in ~/.keras/datasets: one .npz with x_train, y_train, x_test, y_test, or other
// names as in keras_arrays.h.
#include <sys/stat.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "data/array/keras_arrays.h"
#include "data/array/npz.h"
#include "data/formats.h"

namespace cairn::data {
namespace {

class NpzArrays final : public NamedArrays {
 public:
  NpzArrays(NpzFile file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  std::vector<std::string> Names() const override { return file_.Names(); }
  bool Has(const std::string& name) const override { return file_.Has(name); }
  absl::StatusOr<Array> Read(const std::string& name) const override { return file_.Read(name); }
  std::string FullName(const std::string& name) const override { return absl::StrCat(path_, ": ", name); }

 private:
  const NpzFile file_;
  const std::string path_;
};

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

LoadedSplits LoadNpz(const DataOptions& options) {
  std::string archive = options.path;
  if (IsDirectory(archive)) {
    archive += "/mnist.npz";
    if (!FileExists(archive)) return std::nullopt;
  } else if (!absl::EndsWith(archive, ".npz")) {
    return std::nullopt;
  }
  CAIRN_ASSIGN_OR_RETURN(NpzFile file, NpzFile::Open(archive));
  CAIRN_ASSIGN_OR_RETURN(Splits splits, LoadKerasArrays(NpzArrays(std::move(file), archive), options));
  return splits;
}

}  // namespace cairn::data
