#include "worker/data/file_sets.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace cairn::data {
namespace {

// "-00000-of-00002", "_3", "": what may stand around a suffix.
bool IsPieceNumber(absl::string_view text) {
  const std::string digits = absl::StrReplaceAll(text, {{"-of-", "-"}});
  return digits.find_first_not_of("0123456789-_.") == std::string::npos;
}

}  // namespace

std::vector<std::string> FindFiles(const std::string& directory, absl::string_view set,
                                   absl::string_view suffix) {
  std::vector<std::string> found;
  std::error_code error;  // a directory that cannot be read holds nothing
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    absl::string_view rest = name;
    if (!absl::ConsumePrefix(&rest, set)) continue;
    absl::ConsumeSuffix(&rest, ".gz");
    const size_t at = rest.rfind(suffix);
    if (at == absl::string_view::npos) continue;
    if (IsPieceNumber(rest.substr(0, at)) && IsPieceNumber(rest.substr(at + suffix.size()))) {
      found.push_back(absl::StrCat(directory, "/", name));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool IsFileNamed(const std::string& path, absl::string_view suffix) {
  const std::filesystem::path file(path);
  std::error_code error;
  return absl::StrContains(file.filename().string(), suffix) && std::filesystem::is_regular_file(file, error);
}

std::vector<std::string> FindValidationFiles(const std::string& directory, absl::string_view suffix) {
  std::vector<std::string> files = FindFiles(directory, "test", suffix);
  return files.empty() ? FindFiles(directory, "validation", suffix) : files;
}

}  // namespace cairn::data
