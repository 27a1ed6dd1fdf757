// A directory with one .npy file for each array: x_train.npy, y_train.npy, x_test.npy, y_test.npy. They are
// mapped and may be larger than the memory.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "worker/data/formats.h"
#include "worker/data/keras_arrays.h"
#include "worker/data/npy.h"

namespace cairn::data {
namespace {

class NpyFiles final : public NamedArrays {
 public:
  explicit NpyFiles(std::string directory) : directory_(std::move(directory)) {}

  bool Has(const std::string& name) const override { return FileExists(FullName(name)); }
  absl::StatusOr<Array> Read(const std::string& name) const override {
    const std::string path = FullName(name);
    auto reader = OpenPlainOrGzip(path);
    if (!reader.ok()) return Annotate(reader.status(), path);
    auto array = ReadNpy(**reader);
    if (!array.ok()) return Annotate(array.status(), path);
    return array;
  }
  std::string FullName(const std::string& name) const override {
    return absl::StrCat(directory_, "/", name, ".npy");
  }

 private:
  const std::string directory_;
};

}  // namespace

LoadedSplits LoadNpyDirectory(const DataOptions& options) {
  const NpyFiles files(options.path);
  if (!files.Has("x_train") && !files.Has("y_train")) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(Splits splits, LoadKerasArrays(files, options));
  return splits;
}

}  // namespace cairn::data
