#include "data/criteo/criteo_files.h"

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"

namespace cairn::data {
namespace {

absl::StatusOr<SetFiles> FindSetsOfDays(const std::string& directory) {
  SetFiles sets = {.train = FindDays(directory, {"", ".gz"})};
  if (sets.train.size() < 2) return sets;
  CAIRN_ASSIGN_OR_RETURN(std::string remark, CheckPieces(sets.train));
  if (!remark.empty()) sets.remarks.push_back(std::move(remark));
  sets.validation.push_back(std::move(sets.train.back()));
  sets.train.pop_back();
  return sets;
}

}  // namespace

bool IsCriteoFile(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  const absl::string_view unpacked = absl::StripSuffix(name, ".gz");
  if (!DayIn(unpacked) && !absl::EndsWith(unpacked, ".txt")) return false;
  return IsFileNamed(path, "");
}

absl::StatusOr<SetFiles> FindCriteoFiles(const std::string& path) {
  if (IsCriteoFile(path)) return SetFiles{.train = {path}};
  CAIRN_ASSIGN_OR_RETURN(SetFiles files, FindSets(path, {".txt"}));
  if (!files.train.empty()) return files;
  return FindSetsOfDays(path);
}

}  // namespace cairn::data
