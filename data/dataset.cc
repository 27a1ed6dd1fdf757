#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "data/class_weights.h"
#include "data/example_shape.h"
#include "data/file_sets.h"
#include "data/formats.h"
#include "data/labelled_dataset.h"
#include "data/mapped_rows.h"

namespace cairn::data {
namespace {

struct Format {
  const char* names;  // the names that the format searches, for the error that lists the names of all formats
  LoadedSplits (*load)(const DataOptions& options);
  bool has_columns;  // supports the options for named columns
  bool has_texts = false;
};

constexpr Format kFormats[] = {
    {"IDX files (train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], and t10k-... for validation)",
     &LoadIdxDirectory, false},
    {"mnist.npz, or a .npz file itself (with x_train, y_train, x_test, y_test)", &LoadNpz, false},
    {"x_train.npy, y_train.npy, x_test.npy, y_test.npy", &LoadNpyDirectory, false},
    {"TorchRec's day_0_dense.npy, day_0_sparse.npy, day_0_labels.npy, day_1_...", &LoadTorchrecNpy, false},
    {"tokens: train.bin or train.npy, and test... or val..., or such a file itself, for a model of one "
     "integer input",
     &LoadTokens, false},
    {"CIFAR's data_batch_1.bin ... and test_batch.bin, or train.bin and test.bin", &LoadCifar, false},
    {"train.csv and test.csv or validation.csv, or a .csv file itself; or the same with .tsv, .inter or "
     ".jsonl; or "
     "u.data",
     &LoadCsv, true, true},
    {"train*.tfrecord[s][.gz] and test*... or validation*..., or such a file itself", &LoadTfRecords, true,
     true},
    {"a folder of .txt files for each class, or such folders in train and in validation, valid, val or test, "
     "for a model of one text",
     &LoadTextDirectory, false, true},
    {"a folder of PNG or JPEG images for each class, or such folders in train and in validation, valid, val "
     "or test",
     &LoadImageDirectory, false},
    {"libsvm's or libffm's train*.libsvm, .svm, .libffm, .ffm or .txt and test*... or validation*..., or "
     "such a "
     "file itself",
     &LoadLibsvm, true},
    {"Criteo's train*.txt[.gz] and test*... or validation*..., or day_0, day_1 ..., or such a file itself",
     &LoadCriteo, true},
};

absl::Status CheckColumnOptions(const DataOptions& options) {
  const char* given = !options.label_column.empty()      ? "a label column"
                      : !options.feature_columns.empty() ? "feature columns"
                      : options.missing_value            ? "a number for missing values"
                      : options.max_bad_rows > 0         ? "a number of bad rows"
                      : options.csv_separator != 0       ? "a separator"
                      : options.hash_ids                 ? "hashing of ids"
                                                         : nullptr;
  if (given == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(options.path, ": ", given,
                   " applies to CSV, TFRecord, Criteo and libsvm files; these files have no columns"));
}

// A pattern for the names of training set files: the name's prefix, and a text that the name contains.
struct TrainingFile {
  const char* prefix;
  const char* kind;
};
constexpr TrainingFile kTrainingFiles[] = {
    {"train-images", "ubyte"}, {"mnist", ".npz"},   {"x_train", ".npy"},  {"X_train", ".npy"},
    {"data_batch", ".bin"},    {"train", ".bin"},   {"train", ".csv"},    {"train", ".tsv"},
    {"train", ".inter"},       {"train", ".jsonl"}, {"train", ".npy"},    {"train", ".tfrecord"},
    {"train.txt", ".txt"},     {"day_", "day_"},    {"train", ".libsvm"}, {"train", ".svm"},
    {"train", ".libffm"},      {"train", ".ffm"},
};

// The kind of the training set file `name`; null if no training set file has such a name.
const char* KindOfTrainingFile(absl::string_view name) {
  for (const TrainingFile& file : kTrainingFiles) {
    if (absl::StartsWith(name, file.prefix) && absl::StrContains(name, file.kind)) return file.kind;
  }
  return nullptr;
}

// Finds training files in `directory` of another kind than the files that were read. `used`: the name of the
// inputs that were read.
std::vector<std::string> UnusedTrainingFiles(const std::string& directory, absl::string_view used) {
  std::vector<std::string> unused;
  std::error_code error;  // a path that is a file contains no other files
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    const char* kind = KindOfTrainingFile(name);
    // Unused files of the same kind are reported by the format.
    if (kind != nullptr && !absl::StrContains(used, kind)) unused.push_back(std::move(name));
  }
  return unused;
}

// The folders of images in `directory`, whose data set was read in another format. A single folder other than
// "train/" is not considered a data set.
std::vector<std::string> UnusedImageFolders(const std::string& directory) {
  std::vector<std::string> folders = FindImageSet(directory);
  if (folders.size() == 1 && folders.front() != "train/") folders.clear();
  return folders;
}

absl::StatusOr<Splits> LoadSplits(const DataOptions& options) {
  const std::string& path = options.path;
  if (path.empty()) return absl::InvalidArgumentError("the data directory is not given");
  if (!FileExists(path)) return absl::NotFoundError(absl::StrCat(path, ": no such file or directory"));
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) && !std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file or a directory"));
  }
  const DataOptions in_files = WithTypesInFiles(options);
  std::string looked_for;
  for (const Format& format : kFormats) {
    CAIRN_ASSIGN_OR_RETURN(auto splits, format.load(in_files));
    if (splits) {
      if (!format.has_columns) CAIRN_RETURN_IF_ERROR(CheckColumnOptions(options));
      for (Split* split : {&splits->train, splits->validation ? &*splits->validation : nullptr}) {
        if (split == nullptr) continue;
        CAIRN_ASSIGN_OR_RETURN(
            split->inputs, MapRows(options, std::move(split->inputs), split->inputs_name, format.has_texts));
      }
      const absl::string_view used = absl::StripPrefix(splits->train.inputs_name, path);
      std::vector<std::string> unused = UnusedTrainingFiles(path, used);
      if (format.load != &LoadImageDirectory) {
        for (std::string& folder : UnusedImageFolders(path)) unused.push_back(std::move(folder));
      }
      std::string remark = UnusedRemark(path, std::move(unused));
      if (!remark.empty()) splits->remarks.push_back(std::move(remark));
      return *std::move(splits);
    }
    absl::StrAppend(&looked_for, looked_for.empty() ? "" : "; ", format.names);
  }
  return absl::NotFoundError(absl::StrCat(path, ": no data set found; looked for ", looked_for));
}

struct Alike {
  std::string inputs_name, targets_name;  // of the validation set
  bool shapes;                            // examples must have one shape
};

// Checks that `validation` is of the same kind as `train`.
absl::Status CheckAlike(const Dataset& train, const Dataset& validation, const Alike& what) {
  if (what.shapes && !IsCompatible(validation.example_shape(), train.example_shape())) {
    return absl::InvalidArgumentError(
        absl::StrCat(what.inputs_name, ": examples have the shape ", validation.example_shape().ToString(),
                     ", but those of the training set ", train.example_shape().ToString()));
  }
  // Whether the targets are class indices is not compared: numbers may happen to be integers. The loss
  // decides.
  if (validation.num_targets() != train.num_targets()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what.targets_name, ": targets are ", DescribeTargets(validation),
                     ", but those of the training set are ", DescribeTargets(train)));
  }
  return absl::OkStatus();
}

// Extends byte_inputs to all inputs of the model. INVALID_ARGUMENT if one array has the bytes of several
// inputs, of which some take bytes unchanged and others scaled.
absl::Status SpreadByteInputs(const DataOptions& options, Split& split) {
  const size_t inputs = std::max<size_t>(options.input_names.size(), 1);
  if (split.byte_inputs.empty() || split.byte_inputs.size() >= inputs) return absl::OkStatus();
  split.byte_inputs.resize(inputs, split.byte_inputs.front());
  if (!split.byte_inputs.front() || !std::isnan(options.input_scale)) return absl::OkStatus();
  const auto other =
      std::adjacent_find(options.raw_bytes.begin(), options.raw_bytes.end(), std::not_equal_to<>());
  if (other == options.raw_bytes.end()) return absl::OkStatus();
  const auto first = static_cast<size_t>(other - options.raw_bytes.begin());
  const std::string& raw = options.input_names[*other ? first : first + 1];
  const std::string& scaled = options.input_names[*other ? first + 1 : first];
  return absl::InvalidArgumentError(
      absl::StrCat(split.inputs_name, ": holds the bytes of all inputs of the model, but input '", raw,
                   "' takes them unchanged and input '", scaled,
                   "' scaled: give each input its own array, or set --input_scale for both"));
}

// Applies options.label_threshold to the targets of `split`, if it has any.
absl::Status UseThreshold(const DataOptions& options, Split& split) {
  const bool any = !split.targets.values.empty() || split.target_rows != nullptr;
  if (!options.label_threshold || !any) return absl::OkStatus();
  const absl::Status applied =
      split.target_rows != nullptr ? absl::InvalidArgumentError("needs labels, but the targets are tokens")
      : split.class_names.empty()  ? ApplyThreshold(*options.label_threshold, split.targets)
                                   : absl::InvalidArgumentError("needs numbers, but the labels are words");
  CAIRN_RETURN_IF_ERROR(Annotate(applied, absl::StrCat(split.targets_name, ": --label_threshold")));
  const auto positives = std::count(split.targets.values.begin(), split.targets.values.end(), 1.0f);
  split.notes.push_back(absl::StrCat(split.targets_name, ": ", positives, " of ", split.targets.size(),
                                     " labels are at least ", *options.label_threshold, ": class 1"));
  return absl::OkStatus();
}

// Gives each output, or row, a weight in both sets if one of them has such weights, so that a batch has the same form
// in both.
void SpreadWeights(Weights& train, Weights& validation) {
  const std::vector<WeightPart> form = CommonParts(train.parts, validation.parts);
  if (form.empty()) return;  // one of them does not fit the model
  train.Spread(form);
  validation.Spread(form);
}

// Sets input_scale if all inputs of the model take bytes unchanged, so that formats need not check each
// input.
DataOptions WithCommonScale(DataOptions options) {
  const std::vector<bool>& raw = options.raw_bytes;
  const bool all_raw = !raw.empty() && std::count(raw.begin(), raw.end(), false) == 0;
  if (std::isnan(options.input_scale) && all_raw) options.input_scale = 1;
  return options;
}

}  // namespace

absl::StatusOr<std::optional<Examples>> LoadExamples(const DataOptions& given) {
  const DataOptions options = WithTypesInFiles(WithCommonScale(given));
  for (const auto load : {&LoadCsvExamples, &LoadTfRecordExamples, &LoadLibsvmExamples, &LoadCriteoExamples,
                          &LoadTextExamples, &LoadImageExamples}) {
    CAIRN_ASSIGN_OR_RETURN(auto split, load(options));
    if (!split) continue;
    const bool has_texts =
        load == &LoadCsvExamples || load == &LoadTfRecordExamples || load == &LoadTextExamples;
    CAIRN_ASSIGN_OR_RETURN(split->inputs,
                           MapRows(options, std::move(split->inputs), split->inputs_name, has_texts));
    CAIRN_RETURN_IF_ERROR(SpreadByteInputs(options, *split));
    CAIRN_RETURN_IF_ERROR(UseThreshold(options, *split));
    Examples examples = {.inputs = std::move(split->inputs),
                         .notes = std::move(split->notes),
                         .byte_inputs = std::move(split->byte_inputs),
                         .columns = std::move(split->columns)};
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

std::string DescribeTargets(const Dataset& dataset) {
  if (dataset.num_classes() > 0) return "class indices";
  return absl::StrCat(dataset.num_targets(), dataset.num_targets() == 1 ? " number" : " numbers");
}

absl::Status CheckInputShape(const DataOptions& options, size_t input, const Shape& given,
                             const std::string& name) {
  if (input >= options.input_shapes.size()) return absl::OkStatus();
  const Shape& wanted = options.input_shapes[input];
  if (IsCompatible(given, wanted)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": examples have shape ", given.ToString(), ", input '", options.input_names[input],
                   "' of the model takes ", wanted.ToString(), MismatchHint(given, wanted)));
}

absl::Status CheckWeightCounts(const DataOptions& options, absl::Span<const int64_t> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const int ids = options.WeightsOf(i);
    if (ids < 0 || values[i] == values[static_cast<size_t>(ids)]) continue;
    return absl::InvalidArgumentError(absl::StrCat("has ", values[i], values[i] == 1 ? " weight" : " weights",
                                                   " for input '", options.input_names[i], "', but ",
                                                   values[static_cast<size_t>(ids)], " ids for input '",
                                                   options.input_names[static_cast<size_t>(ids)], "'"));
  }
  return absl::OkStatus();
}

float DataOptions::ScaleOf(size_t input) const {
  if (!std::isnan(input_scale) || input >= raw_bytes.size() || !raw_bytes[input]) return input_scale;
  return 1;
}

std::string Dataset::TargetName(int64_t index) const {
  return absl::StrCat("targets: example ", index);
}

absl::StatusOr<TrainingData> LoadTrainingData(const DataOptions& given) {
  const DataOptions options = WithCommonScale(given);
  CAIRN_ASSIGN_OR_RETURN(Splits splits, LoadSplits(options));
  TrainingData data;
  data.class_names = splits.train.class_names;
  data.remarks = std::move(splits.remarks);
  data.notes = std::move(splits.notes);
  data.tokens = std::move(splits.tokens);
  if (std::string remark = IncompleteSetRemark(options.path); !remark.empty()) data.remarks.push_back(remark);
  for (Split* split : {&splits.train, splits.validation ? &*splits.validation : nullptr}) {
    if (split == nullptr) continue;
    CAIRN_RETURN_IF_ERROR(SpreadByteInputs(options, *split));
    CAIRN_RETURN_IF_ERROR(UseThreshold(options, *split));
    if (!split->remark.empty()) data.remarks.push_back(split->remark);
    for (std::string& note : split->notes) data.notes.push_back({std::move(note), /*usual=*/false});
  }
  CAIRN_RETURN_IF_ERROR(ApplyClassWeights(options, splits.train));
  if (splits.validation) SpreadWeights(splits.train.weights, splits.validation->weights);
  data.byte_inputs = splits.train.byte_inputs;
  data.columns = std::move(splits.train.columns);
  CAIRN_ASSIGN_OR_RETURN(
      data.train, LabelledDataset::Create(std::move(splits.train), options, LabelledDataset::Use::kTraining));
  if (!splits.validation) return data;
  const std::string inputs_name = splits.validation->inputs_name;
  const std::string targets_name = splits.validation->targets_name;
  CAIRN_ASSIGN_OR_RETURN(data.validation, LabelledDataset::Create(*std::move(splits.validation), options,
                                                                  LabelledDataset::Use::kValidation));
  // The longest examples of ragged inputs may differ.
  const bool ragged = std::count(options.ragged_inputs.begin(), options.ragged_inputs.end(), true) > 0;
  CAIRN_RETURN_IF_ERROR(CheckAlike(*data.train, *data.validation, {inputs_name, targets_name, !ragged}));
  return data;
}

}  // namespace cairn::data
