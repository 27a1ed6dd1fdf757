// A directory with one .npy file for each array: x_train.npy, y_train.npy, and others as in keras_arrays.h.
// The files are mapped and may be larger than the memory.
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "data/array/keras_arrays.h"
#include "data/array/npy.h"
#include "data/formats.h"

namespace cairn::data {
namespace {

constexpr absl::string_view kTrainingArrays[] = {"x_train", "X_train", "y_train", "Y_train"};

class NpyFiles final : public NamedArrays {
 public:
  explicit NpyFiles(std::string directory) : directory_(std::move(directory)) {}

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    std::error_code error;  // a directory that cannot be read counts as empty
    std::filesystem::directory_iterator entry(directory_, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      if (entry->path().extension() == ".npy") names.push_back(entry->path().stem().string());
    }
    return names;
  }
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
  // x_train, or with several inputs or outputs only x_train_NAME and y_train_NAME.
  const auto is_training_array = [](const std::string& name) {
    return absl::c_any_of(kTrainingArrays, [&](absl::string_view array) {
      return name == array || absl::StartsWith(name, absl::StrCat(array, "_"));
    });
  };
  if (absl::c_none_of(files.Names(), is_training_array)) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(Splits splits, LoadKerasArrays(files, options));
  return splits;
}

}  // namespace cairn::data
