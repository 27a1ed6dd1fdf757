#include "data/columns.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace cairn::data {

std::string ListColumns(absl::Span<const std::string> names) {
  constexpr size_t kMaxShown = 20;
  std::string text;
  for (const std::string& name : names.subspan(0, kMaxShown)) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", absl::Utf8SafeCHexEscape(name));
  }
  return names.size() > kMaxShown ? absl::StrCat(text, ", ...") : text;
}

std::string ListColumns(const std::vector<std::string>& names, absl::Span<const size_t> columns) {
  std::vector<std::string> chosen;
  for (const size_t column : columns) chosen.push_back(names[column]);
  return ListColumns(chosen);
}

}  // namespace cairn::data
