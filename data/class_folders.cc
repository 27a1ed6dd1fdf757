#include "data/class_folders.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "data/class_names.h"
#include "data/file_sets.h"

namespace cairn::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kValidationFolders[] = {"validation", "valid", "val", "test"};

bool IsHidden(const fs::path& path) {
  return absl::StartsWith(path.filename().string(), ".");
}

// The folders in `directory` except hidden ones, sorted by name.
std::vector<std::string> FoldersIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;  // a directory that cannot be read counts as empty
  for (fs::directory_iterator entry(directory, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->is_directory(error) && !IsHidden(entry->path()))
      names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The files of the kind in `directory`, sorted. With `below`, they include those in the folders below it. As in
// Keras, links to folders are not followed.
absl::StatusOr<std::vector<std::string>> FilesIn(const FileKind& kind, const std::string& directory,
                                                 bool below) {
  std::vector<std::string> paths;
  std::error_code error, of_entry;  // an entry that is a dangling link is not a directory
  for (fs::recursive_directory_iterator entry(directory, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->is_directory(of_entry)) {
      if (!below || IsHidden(entry->path())) entry.disable_recursion_pending();
    } else if (!IsHidden(entry->path()) && kind.is_example(entry->path())) {
      paths.push_back(entry->path().string());
    }
  }
  // An unreadable folder may hold files, which would be missing from the set.
  if (error)
    return absl::InvalidArgumentError(absl::StrCat(directory, ": cannot be read: ", error.message()));
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string CountOf(const FileKind& kind, size_t files) {
  return absl::StrCat(files, " ", files == 1 ? kind.one : kind.several);
}

// The files of one set and their classes.
struct ClassFiles {
  std::vector<std::string> paths;
  std::vector<float> labels;  // [file]
};

// The files below `directory` whose folders are among `class_names`. INVALID_ARGUMENT if any other folder
// has files.
absl::StatusOr<ClassFiles> FindFiles(const FileKind& kind, const std::string& directory,
                                     const std::vector<std::string>& class_names) {
  ClassFiles found;
  for (const std::string& folder : FoldersIn(directory)) {
    CAIRN_ASSIGN_OR_RETURN(std::vector<std::string> files,
                           FilesIn(kind, absl::StrCat(directory, "/", folder), /*below=*/true));
    const auto name = std::find(class_names.begin(), class_names.end(), folder);
    if (name == class_names.end()) {
      if (files.empty()) continue;
      return absl::InvalidArgumentError(absl::StrCat(directory, ": the folder '", folder,
                                                     "' is not one of the ", DescribeClasses(class_names)));
    }
    found.labels.resize(found.labels.size() + files.size(), static_cast<float>(name - class_names.begin()));
    std::move(files.begin(), files.end(), std::back_inserter(found.paths));
  }
  return found;
}

absl::StatusOr<Split> LoadSplit(const FileKind& kind, const std::string& directory,
                                const std::vector<std::string>& class_names, const DataOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(ClassFiles found, FindFiles(kind, directory, class_names));
  if (found.paths.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, ": has no ", kind.several, " in class folders"));
  }
  Split split;
  split.inputs_name = directory;
  split.targets_name = directory;
  split.notes.push_back(
      absl::StrCat(directory, ": ", CountOf(kind, found.paths.size()), ", ", DescribeClasses(class_names)));
  CAIRN_ASSIGN_OR_RETURN(split.inputs, kind.make_rows(std::move(found.paths), options));
  split.targets.values = std::move(found.labels);
  split.targets.num_classes = static_cast<int64_t>(class_names.size());
  split.class_names = class_names;
  split.byte_inputs = {kind.bytes};
  return split;
}

// Appends a warning about files directly in `directory`, and folders there that are not in `read`.
absl::Status RemarkUnread(const FileKind& kind, const std::string& directory,
                          const std::vector<std::string>& read, std::vector<std::string>& remarks) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(kind, directory, /*below=*/false));
  std::vector<std::string> unread;
  for (const std::string& file : files) unread.push_back(fs::path(file).filename().string());
  for (const std::string& folder : FoldersIn(directory)) {
    if (std::find(read.begin(), read.end(), folder) == read.end()) unread.push_back(folder + "/");
  }
  std::string remark = UnusedRemark(directory, std::move(unread));
  if (!remark.empty()) remarks.push_back(std::move(remark));
  return absl::OkStatus();
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// The folder that contains the training set's class folders.
std::string TrainingFolder(const std::string& directory) {
  const std::string train = absl::StrCat(directory, "/train");
  return IsFolder(train) ? train : directory;
}

// Whether `folder` itself has files of the kind. The folders below it are not searched, since there may be a whole disk
// below.
bool HoldsFiles(const FileKind& kind, const std::string& folder) {
  const auto files = FilesIn(kind, folder, /*below=*/false);
  return files.ok() && !files->empty();
}

}  // namespace

std::vector<std::string> FindClassFolders(const FileKind& kind, const std::string& directory) {
  const std::string training = TrainingFolder(directory);
  std::vector<std::string> folders;
  for (const std::string& folder : FoldersIn(training)) {
    if (!HoldsFiles(kind, absl::StrCat(training, "/", folder))) continue;
    if (training != directory) return {"train/"};
    folders.push_back(folder + "/");
  }
  return folders;
}

LoadedSplits LoadClassFolders(const FileKind& kind, const DataOptions& options) {
  if (!IsFolder(options.path)) return std::nullopt;
  if (FindClassFolders(kind, options.path).empty()) return std::nullopt;
  const std::string training = TrainingFolder(options.path);
  const bool named = training != options.path;  // the folder "train" exists
  const std::vector<std::string> classes = FoldersIn(training);
  Splits splits;
  CAIRN_ASSIGN_OR_RETURN(splits.train, LoadSplit(kind, training, classes, options));
  CAIRN_RETURN_IF_ERROR(RemarkUnread(kind, training, classes, splits.remarks));
  std::vector<std::string> sets = {"train"};
  for (const char* set : kValidationFolders) {
    const std::string validation = absl::StrCat(options.path, "/", set);
    if (!IsFolder(validation)) continue;
    if (!named) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.path, ": has the folder '", set, "' but no folder 'train'"));
    }
    CAIRN_ASSIGN_OR_RETURN(splits.validation, LoadSplit(kind, validation, classes, options));
    CAIRN_RETURN_IF_ERROR(RemarkUnread(kind, validation, FoldersIn(validation), splits.remarks));
    sets.push_back(set);
    break;
  }
  if (named) CAIRN_RETURN_IF_ERROR(RemarkUnread(kind, options.path, sets, splits.remarks));
  return splits;
}

LoadedExamples LoadClassFolderExamples(const FileKind& kind, const DataOptions& options) {
  if (!IsFolder(options.path)) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(std::vector<std::string> files, FilesIn(kind, options.path, /*below=*/false));
  if (files.empty()) {
    std::vector<std::string> classes =
        options.class_names.empty() ? FoldersIn(options.path) : options.class_names;
    CAIRN_ASSIGN_OR_RETURN(Split split, LoadSplit(kind, options.path, classes, options));
    return split;
  }
  Split split;
  split.inputs_name = options.path;
  split.notes.push_back(
      absl::StrCat(options.path, ": ", CountOf(kind, files.size()), " in the order of their names"));
  CAIRN_ASSIGN_OR_RETURN(split.inputs, kind.make_rows(std::move(files), options));
  return split;
}

}  // namespace cairn::data
