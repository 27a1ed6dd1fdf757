// The file formats of labelled examples: one function each, listed in dataset.cc.
//
// A format checks whether a data set of its kind is at a path, and returns its rows. The caller checks the
// conditions that relate inputs, targets and weights, once for all formats.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/row_source.h"
#include "data/targets.h"

namespace cairn::data {

// One file of a set that has several files.
struct FilePart {
  std::string path;
  int64_t first = 0;  // index of the file's first example in the set
};

struct Split {
  std::unique_ptr<RowSource> inputs;  // at least one row
  Targets targets;
  // Targets that stay in mapped files: `targets` describes them, and has no values. Null: `targets` has the values.
  std::unique_ptr<RowSource> target_rows{};
  Weights weights{};
  std::string inputs_name;  // origin of the inputs, for messages: "mnist.npz: x_train"
  std::string targets_name;
  std::vector<std::string> class_names{};  // [class]; empty if labels are not words or folders
  std::vector<std::string> notes{};        // how the files were read, for the log
  // [file] The files of a set that has several. Empty: the names above identify the file.
  std::vector<FilePart> parts;
  // [input of the model] True if its values are bytes in the files. A single entry if each row concatenates
  // all inputs. Empty: false for all inputs.
  std::vector<bool> byte_inputs;
  std::optional<Columns> columns{};  // set for CSV, TFRecord, Criteo and libsvm files
  // Missing parts of the files that the user should know about; empty: none.
  std::string remark;
};

struct Splits {
  Split train;
  std::optional<Split> validation;
  std::vector<std::string> remarks{};  // about both sets: files or arrays that are not used
  std::vector<Note> notes{};
  std::optional<TokensJson> tokens{};  // as in TrainingData
};

// Each loader returns nullopt if there is no data set of its format at `options.path`. Errors name the file
// and its fault.
using LoadedSplits = absl::StatusOr<std::optional<Splits>>;
LoadedSplits LoadIdxDirectory(const DataOptions& options);
LoadedSplits LoadNpz(const DataOptions& options);
LoadedSplits LoadNpyDirectory(const DataOptions& options);
LoadedSplits LoadTorchrecNpy(const DataOptions& options);
LoadedSplits LoadTokens(const DataOptions& options);
LoadedSplits LoadCifar(const DataOptions& options);
LoadedSplits LoadCsv(const DataOptions& options);
LoadedSplits LoadTfRecords(const DataOptions& options);
LoadedSplits LoadLibsvm(const DataOptions& options);
LoadedSplits LoadCriteo(const DataOptions& options);
LoadedSplits LoadImageDirectory(const DataOptions& options);
LoadedSplits LoadTextDirectory(const DataOptions& options);

// The folders that LoadImageDirectory() would train on: "train/", or the class folders. Empty: none.
std::vector<std::string> FindImageSet(const std::string& directory);

// Loaders for prediction: the examples of one file or directory. `targets` are empty if it has no labels.
using LoadedExamples = absl::StatusOr<std::optional<Split>>;
LoadedExamples LoadCsvExamples(const DataOptions& options);
LoadedExamples LoadTfRecordExamples(const DataOptions& options);
LoadedExamples LoadLibsvmExamples(const DataOptions& options);
LoadedExamples LoadCriteoExamples(const DataOptions& options);
LoadedExamples LoadImageExamples(const DataOptions& options);
LoadedExamples LoadTextExamples(const DataOptions& options);

}  // namespace cairn::data
