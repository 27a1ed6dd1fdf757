#include "cli/launcher/fault_filter.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cairn::cli {
namespace {

constexpr size_t kKept = 32;  // number of texts remembered

// The text of an error line, "E1126 01:23:54.326 ps/0] text", which may follow "[ps/0] "; empty for any other
// line.
absl::string_view TextOfError(absl::string_view line) {
  if (absl::StartsWith(line, "[")) line.remove_prefix(std::min(line.find("] ") + 2, line.size()));
  const bool error = line.size() > 5 && line[0] == 'E' &&
                     absl::ascii_isdigit(static_cast<unsigned char>(line[1])) && line[5] == ' ';
  const size_t end = line.find("] ");
  return !error || end == absl::string_view::npos ? absl::string_view() : line.substr(end + 2);
}

// "the job failed: worker/1 failed: the loss is nan" -> "the loss is nan".
absl::string_view CauseOf(absl::string_view text) {
  absl::ConsumePrefix(&text, "the job failed: ");
  constexpr absl::string_view kFailed = " failed: ";
  const size_t at = text.find(kFailed);
  const absl::string_view task = text.substr(0, at);
  const bool after_task =
      at != absl::string_view::npos && absl::StrContains(task, '/') && !absl::StrContains(task, ' ');
  return after_task ? text.substr(at + kFailed.size()) : text;
}

}  // namespace

std::string FaultFilter::Pass(absl::string_view lines) {
  std::string passed;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(lines, "\n"), '\n')) {
    if (!lines.empty() && IsNew(line)) absl::StrAppend(&passed, line, "\n");
  }
  return passed;
}

bool FaultFilter::IsNew(absl::string_view line) {
  const absl::string_view cause = CauseOf(TextOfError(line));
  if (cause.empty()) return true;
  if (std::find(shown_.begin(), shown_.end(), cause) != shown_.end()) return false;
  shown_.emplace_back(cause);
  if (shown_.size() > kKept) shown_.pop_front();
  return true;
}

}  // namespace cairn::cli
