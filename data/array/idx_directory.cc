// A directory of IDX files with MNIST's names (also used by Fashion-MNIST and KMNIST).
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "data/array/array_rows.h"
#include "data/array/idx.h"
#include "data/file_sets.h"
#include "data/formats.h"

namespace cairn::data {
namespace {

// Finds a file such as "train-images" + "idx3-ubyte", joined by '-' or '.', plain or gzipped. Further files
// with these names are added to `unused`.
std::optional<std::string> FindFile(const std::string& directory, const std::string& stem, const char* kind,
                                    std::vector<std::string>& unused) {
  std::optional<std::string> found;
  for (const char* joint : {"-", "."}) {
    for (const char* packing : {"", ".gz"}) {
      std::string name = absl::StrCat(stem, joint, kind, packing);
      std::string path = absl::StrCat(directory, "/", name);
      if (!FileExists(path)) continue;
      if (found) {
        unused.push_back(std::move(name));
      } else {
        found = std::move(path);
      }
    }
  }
  return found;
}

absl::StatusOr<std::optional<Split>> LoadSplit(const DataOptions& options, const std::string& prefix,
                                               std::vector<std::string>& unused) {
  const std::string& directory = options.path;
  const std::string images_stem = prefix + "-images", labels_stem = prefix + "-labels";
  const auto images = FindFile(directory, images_stem, "idx3-ubyte", unused);
  const auto labels = FindFile(directory, labels_stem, "idx1-ubyte", unused);
  if (!images && !labels) return std::nullopt;
  if (!images || !labels) {
    return absl::NotFoundError(
        absl::StrCat(images ? *images : *labels, " exists, but not ", directory, "/",
                     images ? labels_stem + "-idx1-ubyte" : images_stem + "-idx3-ubyte", "[.gz]"));
  }
  Split split;
  split.inputs_name = *images;
  split.targets_name = *labels;
  CAIRN_ASSIGN_OR_RETURN(Array inputs, ReadIdx(*images));
  split.byte_inputs = {inputs.type == ElementType::kUint8};
  CAIRN_ASSIGN_OR_RETURN(split.inputs, MakeArrayRows(std::move(inputs), *images, options.ScaleOf(0)));
  CAIRN_ASSIGN_OR_RETURN(const Array targets, ReadIdx(*labels));
  CAIRN_ASSIGN_OR_RETURN(split.targets, ReadTargets(targets, *labels));
  return split;
}

}  // namespace

LoadedSplits LoadIdxDirectory(const DataOptions& options) {
  std::vector<std::string> unused;
  CAIRN_ASSIGN_OR_RETURN(auto train, LoadSplit(options, "train", unused));
  if (!train) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(auto validation, LoadSplit(options, "t10k", unused));
  Splits splits = {*std::move(train), std::move(validation)};
  std::string remark = UnusedRemark(options.path, std::move(unused));
  if (!remark.empty()) splits.remarks.push_back(std::move(remark));
  return splits;
}

}  // namespace cairn::data
