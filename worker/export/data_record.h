// The record of the training data that a directory with a trained model (--train_dir or --export_dir)
// contains: class_names.txt, preprocessing.json and tokens.json. The model's inputs and outputs keep their meaning only
// with the same classes and preprocessing.
//
// Blocks on the disk. Any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/tokens_json.h"
#include "worker/export/preprocessing.h"

namespace cairn::worker {

inline constexpr char kPreprocessingFile[] = "preprocessing.json";

struct DataRecord {
  std::string directory{};
  std::vector<std::string> class_names{};  // [class]; empty if labels are neither words nor folders
  // Nullopt: an older program, which did not record it, wrote the model.
  std::optional<Preprocessing> preprocessing{};
  std::optional<data::TokensJson> tokens{};  // of a model of tokens

  // "DIR/preprocessing.json", for messages.
  std::string PreprocessingPath() const;
};

// Reads the record that belongs to the model at `path`, which is a --train_dir, one of its checkpoints, or a
// file. The result is empty if there is no record, or if `path` does not exist. Errors name the file.
absl::StatusOr<DataRecord> ReadDataRecord(const std::string& path);

// Writes the files to record.directory. Without class names, removes an existing class_names.txt.
absl::Status WriteDataRecord(const DataRecord& record);

// INVALID_ARGUMENT if `now`, the data to train or evaluate on, differs from `trained` in its classes or in
// the meaning of its inputs (preprocessing.h).
absl::Status CheckSameData(const DataRecord& trained, const DataRecord& now);

// INVALID_ARGUMENT naming the first difference if `class_names`, from the data to train on, differ from the
// record's. OK if `record` is empty.
absl::Status CheckSameClasses(const DataRecord& record, absl::Span<const std::string> class_names);

}  // namespace cairn::worker
