#include "worker/data/dataset.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "worker/data/formats.h"
#include "worker/data/labelled_dataset.h"

namespace cairn::data {
namespace {

struct Format {
  const char* names;  // what it looks for, for the error that lists all
  LoadedSplits (*load)(const DataOptions& options);
  bool has_columns;  // obeys the options for named columns
};

constexpr Format kFormats[] = {
    {"IDX files (train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], and t10k-... for validation)",
     &LoadIdxDirectory, false},
    {"mnist.npz, or a .npz file itself (with x_train, y_train, x_test, y_test)", &LoadNpz, false},
    {"x_train.npy, y_train.npy, x_test.npy, y_test.npy", &LoadNpyDirectory, false},
    {"CIFAR's data_batch_1.bin ... and test_batch.bin, or train.bin and test.bin", &LoadCifar, false},
    {"train.csv and test.csv or validation.csv, or a .csv file itself; or the same with .tsv", &LoadCsv,
     true},
    {"train*.tfrecord[s][.gz] and test*... or validation*..., or such a file itself", &LoadTfRecords, true},
    {"a folder of PNG or JPEG images for each class, or such folders in train and in validation, val or test",
     &LoadImageDirectory, false},
};

absl::Status CheckColumnOptions(const DataOptions& options) {
  const char* given = !options.label_column.empty()      ? "a label column"
                      : !options.feature_columns.empty() ? "feature columns"
                      : options.missing_value            ? "a number for missing values"
                      : options.max_bad_rows > 0         ? "a number of bad rows"
                      : options.csv_separator != 0       ? "a separator"
                                                         : nullptr;
  if (given == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(options.path, ": ", given, " is for CSV and TFRecord files; these have no columns"));
}

absl::StatusOr<Splits> LoadSplits(const DataOptions& options) {
  const std::string& path = options.path;
  if (path.empty()) return absl::InvalidArgumentError("the data directory is not given");
  if (!FileExists(path)) return absl::NotFoundError(absl::StrCat(path, ": no such file or directory"));
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) && !std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file or a directory"));
  }
  std::string looked_for;
  for (const Format& format : kFormats) {
    CAIRN_ASSIGN_OR_RETURN(auto splits, format.load(options));
    if (splits) {
      if (!format.has_columns) CAIRN_RETURN_IF_ERROR(CheckColumnOptions(options));
      return *std::move(splits);
    }
    absl::StrAppend(&looked_for, looked_for.empty() ? "" : "; ", format.names);
  }
  return absl::NotFoundError(absl::StrCat(path, ": no data set found; looked for ", looked_for));
}

std::string DescribeTargets(const Dataset& dataset) {
  if (dataset.num_classes() > 0) return "class indices";
  return absl::StrCat(dataset.num_targets(), dataset.num_targets() == 1 ? " number" : " numbers");
}

// `validation` must be of the same kind as `train`.
absl::Status CheckAlike(const Dataset& train, const Dataset& validation, const std::string& inputs_name,
                        const std::string& targets_name) {
  if (validation.example_shape() != train.example_shape()) {
    return absl::InvalidArgumentError(
        absl::StrCat(inputs_name, ": examples have the shape ", validation.example_shape().ToString(),
                     ", those of the training set ", train.example_shape().ToString()));
  }
  if (DescribeTargets(validation) != DescribeTargets(train)) {
    return absl::InvalidArgumentError(absl::StrCat(targets_name, ": targets are ",
                                                   DescribeTargets(validation),
                                                   ", those of the training set ", DescribeTargets(train)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<Examples>> LoadExamples(const DataOptions& options) {
  for (const auto load : {&LoadCsvExamples, &LoadTfRecordExamples, &LoadImageExamples}) {
    CAIRN_ASSIGN_OR_RETURN(auto split, load(options));
    if (!split) continue;
    Examples examples = {.inputs = std::move(split->inputs), .notes = std::move(split->notes)};
    if (!split->remark.empty()) examples.notes.push_back(split->remark);
    if (split->targets.values.empty()) return examples;
    if (!split->class_names.empty() && options.class_names.empty()) {
      examples.notes.push_back(
          absl::StrCat(split->targets_name,
                       ": its labels are words, whose order the model's files do not hold: "
                       "they are ignored"));
      return examples;
    }
    examples.targets = std::move(split->targets);
    return examples;
  }
  return std::nullopt;
}

absl::StatusOr<TrainingData> LoadTrainingData(const DataOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(Splits splits, LoadSplits(options));
  TrainingData data;
  data.class_names = splits.train.class_names;
  for (const Split* split : {&splits.train, splits.validation ? &*splits.validation : nullptr}) {
    if (split == nullptr) continue;
    if (!split->remark.empty()) data.remarks.push_back(split->remark);
    data.notes.insert(data.notes.end(), split->notes.begin(), split->notes.end());
  }
  CAIRN_ASSIGN_OR_RETURN(
      data.train, LabelledDataset::Create(std::move(splits.train), options, LabelledDataset::Use::kTraining));
  if (!splits.validation) return data;
  const std::string inputs_name = splits.validation->inputs_name;
  const std::string targets_name = splits.validation->targets_name;
  CAIRN_ASSIGN_OR_RETURN(data.validation, LabelledDataset::Create(*std::move(splits.validation), options,
                                                                  LabelledDataset::Use::kValidation));
  CAIRN_RETURN_IF_ERROR(CheckAlike(*data.train, *data.validation, inputs_name, targets_name));
  return data;
}

}  // namespace cairn::data
