#include "worker/export/data_record.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "data/class_names.h"
#include "worker/checkpoint/train_dir.h"

namespace cairn::worker {
namespace {

// The directory of the record that belongs to `path`.
std::string DirectoryOf(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return TrainDirOf(path);
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

// "; class 1 is 'dog' there, 'cat' here"
std::string FirstDifference(absl::Span<const std::string> there, absl::Span<const std::string> here) {
  const auto [other, own] = std::mismatch(there.begin(), there.end(), here.begin(), here.end());
  const auto name = [](auto at, auto end) {
    return at == end ? "none" : absl::StrCat("'", absl::Utf8SafeCHexEscape(*at), "'");
  };
  return absl::StrCat("; class ", other - there.begin(), " is ", name(other, there.end()), " there, ",
                      name(own, here.end()), " here");
}

// INVALID_ARGUMENT if tokens have other texts than in training.
absl::Status CheckSameTokens(const DataRecord& trained, const DataRecord& now) {
  if (!trained.tokens || !now.tokens || trained.tokens->vocabulary.empty()) return absl::OkStatus();
  const std::vector<std::string>&there = trained.tokens->vocabulary, &here = now.tokens->vocabulary;
  if (here.empty() || there == here) return absl::OkStatus();
  const auto at = std::mismatch(there.begin(), there.end(), here.begin(), here.end()).first - there.begin();
  return absl::InvalidArgumentError(absl::StrCat(trained.directory, "/", data::kTokensFile,
                                                 ": the vocabulary of the training set differs from token ",
                                                 at, " on"));
}

// A file of an earlier export would describe another model.
absl::Status RemoveTokensJson(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", data::kTokensFile);
  std::error_code error;
  std::filesystem::remove(path, error);
  return error ? absl::ErrnoToStatus(error.value(), path) : absl::OkStatus();
}

}  // namespace

std::string DataRecord::PreprocessingPath() const {
  return absl::StrCat(directory, "/", kPreprocessingFile);
}

absl::StatusOr<DataRecord> ReadDataRecord(const std::string& path) {
  if (!FileExists(path)) return DataRecord();
  DataRecord record{.directory = DirectoryOf(path)};
  CAIRN_ASSIGN_OR_RETURN(record.class_names, data::ReadClassNames(record.directory));
  if (FileExists(absl::StrCat(record.directory, "/", data::kTokensFile))) {
    CAIRN_ASSIGN_OR_RETURN(record.tokens, data::ReadTokensJson(record.directory));
  }
  const std::string file = record.PreprocessingPath();
  if (!FileExists(file)) return record;
  CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  CAIRN_ASSIGN_OR_RETURN(record.preprocessing, ParsePreprocessing(text, file));
  return record;
}

absl::Status WriteDataRecord(const DataRecord& record) {
  CAIRN_RETURN_IF_ERROR(data::WriteClassNames(record.directory, record.class_names));
  if (record.tokens) {
    CAIRN_RETURN_IF_ERROR(data::WriteTokensJson(record.directory, *record.tokens));
  } else {
    CAIRN_RETURN_IF_ERROR(RemoveTokensJson(record.directory));
  }
  if (!record.preprocessing) return absl::OkStatus();
  return WriteFileAtomically(record.PreprocessingPath(), ToText(*record.preprocessing));
}

absl::Status CheckSameData(const DataRecord& trained, const DataRecord& now) {
  CAIRN_RETURN_IF_ERROR(CheckSameClasses(trained, now.class_names));
  CAIRN_RETURN_IF_ERROR(CheckSameTokens(trained, now));
  if (!trained.preprocessing || !now.preprocessing) return absl::OkStatus();
  return Annotate(CheckSame(*trained.preprocessing, *now.preprocessing), trained.PreprocessingPath());
}

absl::Status CheckSameClasses(const DataRecord& record, absl::Span<const std::string> class_names) {
  if (record.class_names == class_names) return absl::OkStatus();
  const std::string path = absl::StrCat(record.directory, "/", data::kClassNamesFile);
  if (record.class_names.empty()) {
    if (!record.preprocessing) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(record.directory, ": trained with numeric labels, but the training set has ",
                     data::DescribeClasses(class_names), ": class 0 was 0, and is now '",
                     absl::Utf8SafeCHexEscape(class_names.front()), "'"));
  }
  if (class_names.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", data::DescribeClasses(record.class_names),
                     ", but the labels of the training set are numbers: class 0 was '",
                     absl::Utf8SafeCHexEscape(record.class_names.front()), "', and is now 0"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": has ", data::DescribeClasses(record.class_names), "; the training set has ",
                   data::DescribeClasses(class_names), FirstDifference(record.class_names, class_names)));
}

}  // namespace cairn::worker
