#include "data/criteo/criteo_files.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"

namespace cairn::data {
namespace {

// N for "day_N" and "day_N.gz".
std::optional<int64_t> DayOf(absl::string_view name) {
  int64_t day = 0;
  absl::ConsumeSuffix(&name, ".gz");
  if (!absl::ConsumePrefix(&name, "day_") || name.empty() ||
      name.find_first_not_of("0123456789") != absl::string_view::npos || !absl::SimpleAtoi(name, &day)) {
    return std::nullopt;
  }
  return day;
}

absl::StatusOr<SetFiles> FindDays(const std::string& directory) {
  std::map<int64_t, std::string> days;
  std::error_code error;  // a directory that cannot be read counts as empty
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto day = DayOf(name);
    if (!day) continue;
    const auto [there, is_new] = days.emplace(*day, absl::StrCat(directory, "/", name));
    if (is_new) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(there->second, " and ", name, " are the same day: remove one of them"));
  }
  SetFiles sets;
  for (auto& [day, file] : days) sets.train.push_back(std::move(file));
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
  if (!DayOf(name) && !absl::EndsWith(absl::StripSuffix(name, ".gz"), ".txt")) return false;
  return IsFileNamed(path, "");
}

absl::StatusOr<SetFiles> FindCriteoFiles(const std::string& path) {
  if (IsCriteoFile(path)) return SetFiles{.train = {path}};
  CAIRN_ASSIGN_OR_RETURN(SetFiles files, FindSets(path, {".txt"}));
  if (!files.train.empty()) return files;
  return FindDays(path);
}

}  // namespace cairn::data
