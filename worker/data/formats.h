// The file formats of labelled examples: one function each, listed in dataset.cc.
//
// A format looks whether a data set of its kind lies at a path and hands over its rows; what inputs, targets
// and weights must satisfy together is checked behind it, once for all formats.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/row_source.h"
#include "worker/data/targets.h"

namespace cairn::data {

// One file of a set that is in several.
struct FilePart {
  std::string path;
  int64_t first = 0;  // example of the set
};

struct Split {
  std::unique_ptr<RowSource> inputs;  // of at least one row
  Targets targets;
  std::vector<float> weights;  // empty: every example weighs 1
  std::string inputs_name;     // where they came from, for messages: "mnist.npz: x_train"
  std::string targets_name;
  std::string weights_name;
  std::vector<std::string> class_names{};  // [class]; empty where labels are not words or folders
  std::vector<std::string> notes{};        // how the files were read, for the log
  std::vector<FilePart> parts;  // of a set in several files, [file]; empty: the names above tell all
  // [input of the model] its values are bytes in the files; one entry where the rows hold all inputs one
  // behind the other. Empty: none.
  std::vector<bool> byte_inputs;
  std::optional<Columns> columns{};  // of CSV and TFRecord files
  std::string remark;  // what is missing from the files and the user should know of; empty: nothing
};

struct Splits {
  Split train;
  std::optional<Split> validation;
  std::vector<std::string> remarks{};  // about both: files or arrays that are not used
  std::vector<Note> notes{};
};

// Each returns nullopt where nothing of its kind lies at `options.path`; an error names the file and what is
// wrong in it.
using LoadedSplits = absl::StatusOr<std::optional<Splits>>;
LoadedSplits LoadIdxDirectory(const DataOptions& options);
LoadedSplits LoadNpz(const DataOptions& options);
LoadedSplits LoadNpyDirectory(const DataOptions& options);
LoadedSplits LoadCifar(const DataOptions& options);
LoadedSplits LoadCsv(const DataOptions& options);
LoadedSplits LoadTfRecords(const DataOptions& options);
LoadedSplits LoadImageDirectory(const DataOptions& options);

// The folders that LoadImageDirectory() would train on: "train/", or those of the classes. Empty: none.
std::vector<std::string> FindImageSet(const std::string& directory);

// The same for prediction: the examples of one file or directory, whose `targets` are empty where it has no
// labels.
using LoadedExamples = absl::StatusOr<std::optional<Split>>;
LoadedExamples LoadCsvExamples(const DataOptions& options);
LoadedExamples LoadTfRecordExamples(const DataOptions& options);
LoadedExamples LoadImageExamples(const DataOptions& options);

}  // namespace cairn::data
