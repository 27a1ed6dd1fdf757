// Sets of files in folders, one for each class, as Keras' ..._dataset_from_directory() reads them. The classes are the
// folders' names in sorted order; a class has the files in its folder and in the folders below it. If there is a folder
// "train", the training set is in it, and the validation set in the first of validation, valid, val and test that
// exists. Otherwise all folders are the training set.
//
// Any thread; blocks on the disk.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/formats.h"
#include "data/row_source.h"

namespace cairn::data {

// A kind of files.
struct FileKind {
  const char *one, *several;  // "image", "images"
  // Whether a file of this name is an example.
  bool (*is_example)(const std::filesystem::path& file);
  // The rows of the files at `paths`, in this order. Errors name the file.
  absl::StatusOr<std::unique_ptr<RowSource>> (*make_rows)(std::vector<std::string> paths,
                                                          const DataOptions& options);
  bool bytes;  // the rows have bytes
};

// The folders that LoadClassFolders() would train on: "train/", or the class folders. Empty: none.
std::vector<std::string> FindClassFolders(const FileKind& kind, const std::string& directory);

// nullopt if FindClassFolders() finds none at `options.path`.
LoadedSplits LoadClassFolders(const FileKind& kind, const DataOptions& options);

// For prediction: the files in the folder `options.path` itself, in the order of their names; or those in its class
// folders, with their classes. nullopt if the path is no folder.
LoadedExamples LoadClassFolderExamples(const FileKind& kind, const DataOptions& options);

}  // namespace cairn::data
