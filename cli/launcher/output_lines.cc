#include "cli/launcher/output_lines.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cairn::cli {

std::string OutputLines::TakeLine() {
  std::string shown = absl::StrCat(SaysWhose() ? "" : prefix_, partial_, "\n");
  partial_.clear();
  return shown;
}

bool OutputLines::SaysWhose() const {
  if (foreign_ || partial_.empty()) return false;
  if (partial_.front() == '{') return true;
  // "W1126 01:23:54.326 ps/0] text"
  constexpr size_t kBeforeName = sizeof("W1126 01:23:54.326 ") - 1;
  return absl::StrContains("DIWE", partial_.front()) && partial_.size() > kBeforeName && partial_[5] == ' ' &&
         absl::StartsWith(absl::string_view(partial_).substr(kBeforeName),
                          absl::string_view(prefix_).substr(1));
}

std::string OutputLines::Add(absl::string_view bytes) {
  std::string shown;
  for (const char byte : bytes) {
    if (byte != '\n') partial_ += byte;
    if (byte == '\n' || partial_.size() >= kLongest) shown += TakeLine();
  }
  return shown;
}

std::string OutputLines::Finish() {
  return partial_.empty() ? std::string() : TakeLine();
}

}  // namespace cairn::cli
