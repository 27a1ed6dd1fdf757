// A directory of IDX files under MNIST's names (Fashion-MNIST and KMNIST use the same).
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "worker/data/formats.h"
#include "worker/data/idx.h"

namespace cairn::data {
namespace {

// "train-images" + "idx3-ubyte" as the file is found in the wild: joined by '-' or '.', packed or not.
std::optional<std::string> FindFile(const std::string& directory, const char* stem, const char* kind) {
  for (const char* joint : {"-", "."}) {
    for (const char* packing : {"", ".gz"}) {
      std::string path = absl::StrCat(directory, "/", stem, joint, kind, packing);
      if (FileExists(path)) return path;
    }
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<Split>> LoadSplit(const std::string& directory, const std::string& prefix) {
  const std::string images_stem = prefix + "-images", labels_stem = prefix + "-labels";
  const auto images = FindFile(directory, images_stem.c_str(), "idx3-ubyte");
  const auto labels = FindFile(directory, labels_stem.c_str(), "idx1-ubyte");
  if (!images && !labels) return std::nullopt;
  if (!images || !labels) {
    return absl::NotFoundError(
        absl::StrCat(images ? *images : *labels, " is there, but not ", directory, "/",
                     images ? labels_stem + "-idx1-ubyte" : images_stem + "-idx3-ubyte", "[.gz]"));
  }
  CAIRN_ASSIGN_OR_RETURN(Array inputs, ReadIdx(*images));
  CAIRN_ASSIGN_OR_RETURN(Array targets, ReadIdx(*labels));
  return Split{std::move(inputs), std::move(targets), *images, *labels};
}

}  // namespace

absl::StatusOr<std::optional<Splits>> LoadIdxDirectory(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(auto train, LoadSplit(path, "train"));
  if (!train) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(auto validation, LoadSplit(path, "t10k"));
  return Splits{*std::move(train), std::move(validation)};
}

}  // namespace cairn::data
