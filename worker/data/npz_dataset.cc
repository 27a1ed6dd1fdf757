// Keras' data sets as it keeps them in ~/.keras/datasets: one .npz with x_train, y_train, x_test, y_test.
#include <sys/stat.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "worker/data/formats.h"
#include "worker/data/npz.h"

namespace cairn::data {
namespace {

absl::StatusOr<Split> ReadSplit(const NpzFile& file, const std::string& path, const std::string& suffix) {
  CAIRN_ASSIGN_OR_RETURN(Array inputs, file.Read("x" + suffix));
  CAIRN_ASSIGN_OR_RETURN(Array labels, file.Read("y" + suffix));
  return Split{std::move(inputs), std::move(labels), absl::StrCat(path, ": x", suffix),
               absl::StrCat(path, ": y", suffix)};
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

absl::StatusOr<std::optional<Splits>> LoadNpz(const std::string& path) {
  std::string archive = path;
  if (IsDirectory(path)) {
    archive = path + "/mnist.npz";
    if (!FileExists(archive)) return std::nullopt;
  } else if (!absl::EndsWith(path, ".npz")) {
    return std::nullopt;
  }
  CAIRN_ASSIGN_OR_RETURN(const NpzFile file, NpzFile::Open(archive));
  Splits splits;
  CAIRN_ASSIGN_OR_RETURN(splits.train, ReadSplit(file, archive, "_train"));
  if (file.Has("x_test") || file.Has("y_test")) {
    CAIRN_ASSIGN_OR_RETURN(splits.validation, ReadSplit(file, archive, "_test"));
  }
  return splits;
}

}  // namespace cairn::data
