#include "data/csv/csv.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"
#include "data/byte_order_mark.h"

namespace cairn::data {

CsvReader::CsvReader(absl::string_view text, char separator)
    : separator_(separator), rest_(WithoutByteOrderMark(text)) {}

bool CsvReader::TakeLineEnd() {
  if (!absl::ConsumePrefix(&rest_, "\r\n") && !absl::ConsumePrefix(&rest_, "\n")) return false;
  ++next_line_;
  return true;
}

absl::string_view CsvReader::TakePlain() {
  const char ends[] = {separator_, '\n', '\0'};
  const absl::string_view field = rest_.substr(0, rest_.find_first_of(ends));
  rest_.remove_prefix(field.size());
  return absl::StripAsciiWhitespace(field);  // also removes the CR of a CRLF
}

absl::StatusOr<absl::string_view> CsvReader::TakeQuoted() {
  size_t end = 1;
  bool doubled = false;
  for (;; end += 2, doubled = true) {
    end = rest_.find('"', end);
    if (end == absl::string_view::npos) return absl::DataLossError("a quote is opened and never closed");
    if (end + 1 == rest_.size() || rest_[end + 1] != '"') break;
  }
  const absl::string_view inside = rest_.substr(1, end - 1);
  rest_.remove_prefix(end + 1);
  next_line_ += std::count(inside.begin(), inside.end(), '\n');
  if (!doubled) return inside;
  return unquoted_.emplace_back(absl::StrReplaceAll(inside, {{"\"\"", "\""}}));
}

void CsvReader::TakeComment(std::vector<absl::string_view>& fields) {
  absl::string_view line = rest_.substr(0, rest_.find('\n'));
  rest_.remove_prefix(line.size());
  TakeLineEnd();
  line.remove_prefix(1);
  for (const absl::string_view field : absl::StrSplit(line, separator_)) {
    fields.push_back(absl::StripAsciiWhitespace(field));
  }
}

absl::StatusOr<bool> CsvReader::Next(std::vector<absl::string_view>& fields) {
  fields.clear();
  unquoted_.clear();
  while (TakeLineEnd()) continue;
  line_ = next_line_;
  if (rest_.empty()) return false;
  comment_ = rest_.front() == '#';
  if (comment_) {
    TakeComment(fields);
    return true;
  }
  for (;;) {
    if (absl::StartsWith(rest_, "\"")) {
      CAIRN_ASSIGN_OR_RETURN(const absl::string_view field, TakeQuoted());
      fields.push_back(field);
      const absl::string_view behind = TakePlain();
      if (!behind.empty()) {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
        return absl::InvalidArgumentError(
            absl::StrCat("text follows the closing quote of field ", fields.size()));
      }
    } else {
      fields.push_back(TakePlain());
    }
    if (absl::ConsumePrefix(&rest_, absl::string_view(&separator_, 1))) continue;
    TakeLineEnd();
    return true;
  }
}

}  // namespace cairn::data
