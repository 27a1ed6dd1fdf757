#include "cli/output_lines.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn::cli {

std::string OutputLines::TakeLine() {
  const bool json = !partial_.empty() && partial_.front() == '{';
  std::string shown = absl::StrCat(json ? "" : prefix_, partial_, "\n");
  last_lines_.push_back(std::exchange(partial_, {}));
  if (last_lines_.size() > kKept) last_lines_.pop_front();
  return shown;
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
