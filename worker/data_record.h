// What a directory with a trained model, a --train_dir or an --export_dir, keeps about the data of training:
// class_names.txt and preprocessing.json. Without it the same values would mean something else for other
// data.
//
// Blocks on the disk. Any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/preprocessing.h"

namespace cairn::worker {

inline constexpr char kPreprocessingFile[] = "preprocessing.json";

struct DataRecord {
  std::string directory{};
  std::vector<std::string> class_names{};        // [class]; empty where labels are not words or folders
  std::optional<Preprocessing> preprocessing{};  // nullopt: older programs wrote none

  // "DIR/preprocessing.json", for messages.
  std::string PreprocessingPath() const;
};

// Of the values at `path`: a --train_dir, one of its checkpoints, or a file. Empty where nothing is kept, or
// nothing is at `path`.
// Errors name the file.
absl::StatusOr<DataRecord> ReadDataRecord(const std::string& path);

// Writes both files to record.directory. Without class names a file of these is removed.
absl::Status WriteDataRecord(const DataRecord& record);

// INVALID_ARGUMENT where `now`, of the data that is to be trained or evaluated on, differs from `trained` in
// the classes or in the meaning of inputs (preprocessing.h).
absl::Status CheckSameData(const DataRecord& trained, const DataRecord& now);

// INVALID_ARGUMENT naming the first difference where `class_names`, of the data that is to be trained on, are
// not those of the record. Both empty, or nothing known of the record: OK.
absl::Status CheckSameClasses(const DataRecord& record, absl::Span<const std::string> class_names);

}  // namespace cairn::worker
