#include "common/core/one_line.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cairn {
namespace {

// Far longer than any line that Cairn writes.
constexpr size_t kMaxBytes = 16 << 10;

}  // namespace

std::string OneLine(absl::string_view text) {
  const size_t dropped = text.size() > kMaxBytes ? text.size() - kMaxBytes : 0;
  text.remove_suffix(dropped);
  std::string line;
  line.reserve(text.size());
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    if (byte == '\n') {
      line += "\\n";
    } else if (code < 0x20 || code == 0x7f) {
      absl::StrAppendFormat(&line, "\\x%02x", code);
    } else {
      line += byte;
    }
  }
  if (dropped > 0) absl::StrAppend(&line, "... (", dropped, " more bytes)");
  return line;
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(text), "\"");
}

}  // namespace cairn
