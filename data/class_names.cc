#include "data/class_names.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/core/files.h"
#include "common/core/status.h"

namespace cairn::data {
namespace {

// Replaces all escapes in one pass over `line`, so that "\\n" is a backslash and an n.
std::string Unescape(absl::string_view line) {
  return absl::StrReplaceAll(line, {{"\\\\", "\\"}, {"\\n", "\n"}, {"\\r", "\r"}});
}

}  // namespace

std::string DescribeClasses(absl::Span<const std::string> names) {
  constexpr size_t kMaxShown = 20;
  std::string text = absl::StrCat(names.size(), names.size() == 1 ? " class: " : " classes: ");
  for (size_t i = 0; i < names.size() && i < kMaxShown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", i, " '", absl::Utf8SafeCHexEscape(names[i]), "'");
  }
  if (names.size() > kMaxShown) absl::StrAppend(&text, ", ...");
  return text;
}

absl::Status WriteClassNames(const std::string& directory, absl::Span<const std::string> names) {
  const std::string path = absl::StrCat(directory, "/", kClassNamesFile);
  if (names.empty()) {
    std::error_code error;
    std::filesystem::remove(path, error);
    if (!error) return absl::OkStatus();
    return absl::UnknownError(absl::StrCat("cannot remove ", path, ": ", error.message()));
  }
  std::string text;
  for (const std::string& name : names) {
    absl::StrAppend(&text, absl::StrReplaceAll(name, {{"\\", "\\\\"}, {"\n", "\\n"}, {"\r", "\\r"}}), "\n");
  }
  return WriteFileAtomically(path, text);
}

absl::StatusOr<std::vector<std::string>> ReadClassNames(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kClassNamesFile);
  if (!FileExists(path)) return std::vector<std::string>();
  CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<std::string> names;
  if (text.empty()) return names;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    names.push_back(Unescape(line));
  }
  return names;
}

}  // namespace cairn::data
