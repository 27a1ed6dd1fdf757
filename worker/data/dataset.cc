#include "worker/data/dataset.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "worker/data/array_dataset.h"
#include "worker/data/formats.h"

namespace cairn::data {
namespace {

struct Format {
  const char* names;  // what it looks for, for the error that lists all
  absl::StatusOr<std::optional<Splits>> (*load)(const std::string& path);
};

constexpr Format kFormats[] = {
    {"IDX files (train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], and t10k-... for validation)",
     &LoadIdxDirectory},
    {"mnist.npz, or a .npz file itself (with x_train, y_train, x_test, y_test)", &LoadNpz},
};

absl::StatusOr<Splits> LoadSplits(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("the data directory is not given");
  if (!FileExists(path)) return absl::NotFoundError(absl::StrCat(path, ": no such file or directory"));
  std::string looked_for;
  for (const Format& format : kFormats) {
    CAIRN_ASSIGN_OR_RETURN(auto splits, format.load(path));
    if (splits) return *std::move(splits);
    absl::StrAppend(&looked_for, looked_for.empty() ? "" : "; ", format.names);
  }
  return absl::NotFoundError(absl::StrCat(path, ": no data set found; looked for ", looked_for));
}

}  // namespace

absl::StatusOr<TrainingData> LoadTrainingData(const DataOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(Splits splits, LoadSplits(options.path));
  TrainingData data;
  CAIRN_ASSIGN_OR_RETURN(data.train,
                         ArrayDataset::Create(std::move(splits.train), options.input_scale, options.limit));
  if (!splits.validation) return data;
  const std::string name = splits.validation->inputs_name;
  CAIRN_ASSIGN_OR_RETURN(data.validation, ArrayDataset::Create(*std::move(splits.validation),
                                                               options.input_scale, options.limit));
  if (data.validation->example_shape() != data.train->example_shape()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": examples have the shape ", data.validation->example_shape().ToString(),
                     ", those of the training set ", data.train->example_shape().ToString()));
  }
  return data;
}

}  // namespace cairn::data
